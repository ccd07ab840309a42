"""Terminal output that never blocks for long and can be abandoned."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
from collections.abc import Callable

WAIT_MS = 100
"""How long one attempt waits for an unread terminal."""

RESTORE = b"".join(
    (
        b"\x18\x1b\\",  # end whatever sequence was cut off
        b"\x1b[?2026l\x1b[?2004l\x1b[?2048l\x1b[?7h",  # synchronized output, paste, size reports; line wrap
        b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l",  # mouse
        b"\x1b[<u",  # keyboard protocol
        b"\x1b[0m\x1b[?1049l\x1b[?25h\x1b[?1004l",  # colours, alternate screen, cursor, focus reports
    )
)
"""Restores a terminal that missed some of Textual's own sequences."""

_C1 = re.compile("[\x80-\x9f]")


class TerminalOutput:
    """The file that Textual's writer thread writes to.

    Opens the terminal again, non-blocking: a pending write must end with the program, and the shell's own descriptor
    must stay unchanged. `lost` is called in the writer's thread when the terminal disconnects.
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
        """Output is dropped: the terminal is unread or gone."""

    def fileno(self) -> int:
        return self._fd

    def flush(self) -> None:
        """Does nothing: output is not buffered."""

    def write(self, text: str) -> None:
        # Neither Textual nor this program writes C1 characters, which begin sequences in some terminals: they come from
        # outside and are removed. A lone surrogate must not end the writer.
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
        """Drops further output, including the rest of a pending write."""
        self.given_up = True

    def give_back(self) -> None:
        """Restores the terminal as far as it accepts output, after `give_up`."""
        with contextlib.suppress(OSError, termios.error):
            termios.tcflush(self._fd, termios.TCOFLUSH)
        with contextlib.suppress(OSError):
            os.set_blocking(self._fd, False)
            os.write(self._fd, RESTORE)

    def close(self) -> None:
        os.close(self._fd)
