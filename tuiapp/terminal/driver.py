"""What real terminals do to a program: odd bytes, hang-ups, signals, nobody who reads them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from codecs import getincrementaldecoder
from types import FrameType
from typing import Any

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.geometry import Size

from tuiapp.terminal.escape_sequences import EscapeSequences
from tuiapp.terminal.output import TerminalOutput

PATIENCE_S = 1.0
"""How long a terminal that nobody reads may keep a program that was told to end; then it is no longer written to."""

HANG_UP_S = 3.0
"""How long anything may keep it after that."""

READ_BYTES = 4096
SELECT_S = 0.1


class PatientDriver(LinuxDriver):
    """Textual's driver, which odd bytes, signals and a terminal that stalls or goes away do not end or hold up.

    The size is the terminal's own, not that of `COLUMNS` and `LINES`, which stand still when a window is resized; the
    screen is written to where the terminal is, even if stderr leads elsewhere.
    """

    def __init__(
        self, app: Any, *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        stdout = sys.__stdout__
        self._output = TerminalOutput(stdout.fileno() if stdout else self.fileno, self._lose_terminal)
        # The writer thread needs of a file no more than this one has.
        self._file = self._output  # type: ignore[assignment]
        self._size = size or self._get_terminal_size()
        self._ending = 0
        """The signal that told the program to end."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._told_to_end)
        signal.signal(signal.SIGALRM, self._out_of_patience)

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            columns, lines = os.get_terminal_size(self._output.fileno())
        except OSError:
            return super()._get_terminal_size()
        return (columns, lines) if columns and lines else super()._get_terminal_size()

    def start_application_mode(self) -> None:
        """Take the terminal, and follow its size."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # Textual reads the size in the signal's handler. One that the next signal interrupts tells the older size last.
        signal.signal(signal.SIGWINCH, lambda *_: self._loop.call_soon_threadsafe(self._tell_size))

    def _tell_size(self) -> None:
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(Resize(size, size))

    def run_input_thread(self) -> None:
        """Read input until told to stop, or the terminal is gone."""
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
                    # It was waited for what may follow already.
                    parser._timeout_time = 0.0
                for event in parser.tick():
                    self.process_message(event)
            except (ValueError, OverflowError, ParseError):
                # Textual's parser, which cannot go on: what it could not read is a key that nobody has.
                parser = XTermParser(self._debug)

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, READ_BYTES)
        except OSError:
            return b""

    def _lose_terminal(self) -> None:
        """Nobody can see or use the program any more: it ends, as if hung up on."""
        self._output.give_up()
        self._loop.call_soon_threadsafe(self._end, signal.SIGHUP)

    def _told_to_end(self, number: int, _: FrameType | None) -> None:
        """End in order, so that the terminal is given back as it was.

        Runs wherever the main thread is, even where it waits for a terminal that nobody reads: only what is safe there.
        """
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
        """Stop writing; give the terminal back where that was not written."""
        super().close()
        if self._output.given_up:
            self._output.give_back()
        # The interpreter, on its way out, would let the alarm end it.
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _sigtstp_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._suspend)

    def _suspend(self) -> None:
        if self._auto_restart and self._runs:
            self.suspend_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        """Take the terminal again, which the shell had meanwhile."""
        if not self._auto_restart or self._app._exit:
            return
        if self._runs:
            # Stopped without being asked (SIGSTOP): the terminal was never given back.
            self.suspend_application_mode()
        self._must_signal_resume = True
        self.resume_application_mode()
        if self._runs:
            self._app.refresh(layout=True)

    @property
    def _runs(self) -> bool:
        """Whether the terminal is in the program's hands; one put into the background did not get it back."""
        return self._key_thread is not None and self._key_thread.is_alive()
