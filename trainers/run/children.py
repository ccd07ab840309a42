"""The processes that a run has beside its ranks, and can do without: the reaper, and the mirror."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tuiapp.trainers.config.files import open_own
from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.run.rank_end import describe_exit

RETRY_S = 5.0
"""The least time from one start to the next."""


class ChildProcess:
    """Runs `command`, again whenever it has ended; its output goes to the file `log`.

    An alert says that it has failed, and by `without` what that means for the run.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, emit: Callable[[Event], None], without: str
    ) -> None:
        self._name, self._command, self._log, self._emit, self._without = name, command, log, emit, without
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
                with open_own(self._log, "ab") as log:
                    self.process = subprocess.Popen(
                        self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                    )
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
