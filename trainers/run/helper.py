"""Keeps a process running that a run can do without: the reaper, or the mirror; it is started again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.run.rank_end import describe_exit

RETRY_S = 5.0
"""At least, from one start to the next."""


class Helper:
    """`without` says what its failure means for the run."""

    def __init__(
        self,
        name: str,
        start: Callable[[], subprocess.Popen[bytes]],
        emit: Callable[[Event], None],
        without: str,
    ) -> None:
        self._name, self._start, self._emit, self._without = name, start, emit, without
        self.process: subprocess.Popen[bytes] | None = None
        self._due = 0.0
        self._reported = ""

    def advance(self, now: float) -> None:
        if self.process is not None and self.process.poll() is not None:
            exit_code, signal_name = describe_exit(self.process.returncode)
            self.process = None
            self._report(f"was killed by {signal_name}" if signal_name else f"ended with exit code {exit_code}")
        if self.process is None and now >= self._due:
            self._due = now + RETRY_S
            try:
                self.process = self._start()
            except OSError as error:
                self._report(f"cannot be started: {error.strerror or error}")

    def _report(self, how: str) -> None:
        # A repeated failure is reported once.
        if how != self._reported:
            self._reported = how
            self._emit(Alert(kind=self._name, text=f"the {self._name} {how}; {self._without}. It is started again"))

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
