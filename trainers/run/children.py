"""The processes that a run has beside its ranks, and can do without: the reaper, the mirror; they are started again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.files import open_own
from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.contract.rundir import RunDir
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


def start_reaper(run: RunDir, token: str, *, notify: bool = True) -> subprocess.Popen[bytes]:
    """Starts the process that ends this node's ranks if this process dies; with `notify` it sends the user's notice."""
    with open_own(run.supervisor_log, "ab") as log:
        return subprocess.Popen(
            module("tuiapp.trainers.run.reaper", str(os.getpid()), token, *([str(run.path)] if notify else [])),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
