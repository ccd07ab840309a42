"""What real terminals do to a program: odd bytes, hang-ups, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

HANG_UP_S = 3.0
"""How long a terminal that went away may keep the program from ending."""


class PatientDriver(LinuxDriver):
    """Textual's driver, which input that is no UTF-8 does not end.

    Terminals that know only the X10 mouse protocol (tmux after a reattach) send coordinates as bare bytes; beyond
    column 95 these are no UTF-8, and Textual 8.2.8 dies of the decoding error (textual#6668).
    """

    def run_input_thread(self) -> None:
        """Read input until told to stop; what cannot be decoded is dropped."""
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue
            return


def end_on_signals(app: App[Any]) -> None:
    """Let SIGTERM and SIGHUP end an app in order, so that the terminal is given back as it was.

    Must be called in the app's event loop.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _end, app, number)


def _end(app: App[Any], number: int) -> None:
    # Nobody reads what is written to a terminal that went away, and Textual would wait for it for ever.
    timer = threading.Timer(HANG_UP_S, os._exit, [128 + number])
    timer.daemon = True
    timer.start()
    app.exit(return_code=128 + number)
