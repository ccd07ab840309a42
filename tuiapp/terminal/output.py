"""What is written to the terminal: never waits longer than it is wanted, and can be given up."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
from collections.abc import Callable

WAIT_MS = 100
"""How long one attempt waits for a terminal that nobody reads, before it is seen whether to go on."""

RESTORE = b"".join(
    (
        b"\x18\x1b\\",  # end whatever sequence was cut off
        b"\x1b[?2026l\x1b[?2004l\x1b[?2048l\x1b[?7h",  # synchronized output, paste, size reports; line wrap
        b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l",  # mouse
        b"\x1b[<u",  # keyboard protocol
        b"\x1b[0m\x1b[?1049l\x1b[?25h\x1b[?1004l",  # colours, alternate screen, cursor, focus reports
    )
)
"""Gives a terminal back, whatever of Textual's sequences did not reach it."""

_C1 = re.compile("[\x80-\x9f]")


class TerminalOutput:
    """The file that Textual's writer thread writes to.

    The terminal is opened once more, without blocking: a write that is under way must end when the program does, and
    the shell's own descriptor must stay as it is.

    Args:
        fd: A descriptor of the terminal.
        lost: Called, in the writer's thread, when the terminal went away.
    """

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._encoding = getattr(sys.__stdout__, "encoding", None) or "utf-8"
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self._fd = os.open(os.ttyname(fd), flags)
        except OSError:
            # In a container the terminal may have no name.
            self._fd = os.dup(fd)
        self.given_up = False
        """Nothing is written any more: nobody reads it, or the terminal is gone."""

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def write(self, text: str) -> None:
        """Write all of it, or give up."""
        # Neither Textual nor this program writes C1 characters, each of which begins a sequence in some terminals: what
        # of them has come this far came in from outside. A lone surrogate must not end the writer.
        data = memoryview(_C1.sub("", text).encode(self._encoding, "replace"))
        while data and not self.given_up:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll(WAIT_MS)
            except OSError:
                self.give_up()
                self._lost()

    def give_up(self) -> None:
        """Write nothing more; what is being written is cut off."""
        self.given_up = True

    def give_back(self) -> None:
        """Give the terminal back as far as it takes it, in the place of all that was given up."""
        with contextlib.suppress(OSError, termios.error):
            termios.tcflush(self._fd, termios.TCOFLUSH)
        with contextlib.suppress(OSError):
            os.set_blocking(self._fd, False)
            os.write(self._fd, RESTORE)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
