"""Textual's driver for real terminals, with invalid bytes, hang-ups, signals, and output that nobody reads."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Callable
from types import FrameType
from typing import Any

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size

from tuiapp.terminal.escape_sequences import EscapeSequences

PATIENCE_S = 1.0
"""How long an unread terminal may delay the program's end, before output is dropped."""

HANG_UP_S = 3.0
"""How long anything may delay it after that."""

READ_BYTES = 4096
SELECT_S = 0.1


class RobustDriver(LinuxDriver):
    """Textual's driver, which survives invalid bytes, signals, and a terminal that stalls or disconnects.

    The size is the terminal's own, not that of `COLUMNS` and `LINES`, which ignore resizes; output goes to the terminal
    even if stderr is redirected.
    """

    def __init__(
        self, app: Any, *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        stdout = sys.__stdout__
        self._output = TerminalOutput(stdout.fileno() if stdout else self.fileno, self._lose_terminal)
        # The writer thread needs no more of a file than this has.
        self._file = self._output  # type: ignore[assignment]
        self._size = size or self._get_terminal_size()
        self._ending = 0
        """The signal that asked the program to end."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_end_signal)
        signal.signal(signal.SIGALRM, self._out_of_patience)

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            columns, lines = os.get_terminal_size(self._output.fileno())
        except OSError:
            return super()._get_terminal_size()
        return (columns, lines) if columns and lines else super()._get_terminal_size()

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # Textual reads the size in the signal's handler. If the next signal interrupts it, the older size comes last.
        signal.signal(signal.SIGWINCH, lambda *_: self._loop.call_soon_threadsafe(self._report_size))

    def _report_size(self) -> None:
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(Resize(size, size))

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("ignore").decode
        sequences = EscapeSequences()
        while not self.exit_event.is_set():
            patience_s = ESCAPE_DELAY if sequences.waits else SELECT_S
            ready, _, _ = select.select([self.fileno], [], [], patience_s)
            if ready and not (data := self._read()):
                self._lose_terminal()
                return
            text = decode(sequences.feed(data) if ready else sequences.rest())
            try:
                for event in parser.feed(text) if text else ():
                    self.process_message(event)
                if text and not ready and parser._timeout_time is not None:
                    # The wait for the rest of a sequence is already over.
                    parser._timeout_time = 0.0
                for event in parser.tick():
                    self.process_message(event)
            except (ValueError, OverflowError, ParseError):
                # Raised by Textual's parser, which cannot continue: drop what it could not read.
                parser = XTermParser(self._debug)

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, READ_BYTES)
        except OSError:
            return b""

    def _lose_terminal(self) -> None:
        """Ends the program as if hung up on: nobody can see or use it."""
        self._output.give_up()
        self._loop.call_soon_threadsafe(self._end, signal.SIGHUP)

    def _on_end_signal(self, number: int, _: FrameType | None) -> None:
        """Ends in order; interrupts the main thread anywhere, even in a blocked write: only safe calls."""
        self._ending = number
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        self._loop.call_soon_threadsafe(self._end, number)

    def _end(self, number: int) -> None:
        self._app.exit(return_code=128 + number)

    def _out_of_patience(self, _number: int, _: FrameType | None) -> None:
        if not self._output.given_up:
            self._output.give_up()
            signal.setitimer(signal.ITIMER_REAL, HANG_UP_S)
            return
        if self.attrs_before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        self._output.give_back()
        os._exit(128 + (self._ending or signal.SIGHUP))

    def close(self) -> None:
        """Stops writing; restores the terminal if that was not written."""
        super().close()
        if self._output.given_up:
            self._output.give_back()
        # The alarm could otherwise end the interpreter during its exit.
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _sigtstp_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._suspend)

    def _suspend(self) -> None:
        if self._auto_restart and self._runs:
            self.suspend_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._on_continue)

    def _on_continue(self) -> None:
        """Takes the terminal back from the shell after SIGCONT."""
        if not self._auto_restart or self._app._exit:
            return
        if self._runs:
            # Stopped by SIGSTOP: the terminal was never given back.
            self.suspend_application_mode()
        self._must_signal_resume = True
        self.resume_application_mode()
        if self._runs:
            self._app.refresh(layout=True)

    @property
    def _runs(self) -> bool:
        """Whether the program controls the terminal; in the background it does not."""
        return self._key_thread is not None and self._key_thread.is_alive()


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
    """The file that Textual's writer thread writes to; it never blocks for long, and can be abandoned.

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
