"""A process beside the ranks, restarted when it dies: the reaper, the sampler. Training continues without it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from trainers.contract.events import Alert, Event
from trainers.runtime.failures import describe_exit

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
STEADY_S = 60.0
"""A helper that has lived this long restarts with the first delay again."""
END_S = 1.0
"""Time to end after SIGKILL: a driver call may block it, and it is then not waited for."""


class Helper:
    """Keeps one helper running; `kind` is that of its alerts, `without` says what is missing while it is down."""

    def __init__(
        self,
        kind: str,
        name: str,
        start: Callable[[], subprocess.Popen[bytes]],
        emit: Callable[[Event], None],
        without: str,
    ) -> None:
        self._kind, self._name, self._start, self._emit, self._without = kind, name, start, emit, without
        self.process: subprocess.Popen[bytes] | None = None
        self._started_at = self._due = 0.0
        self._delay = FIRST_RETRY_S
        self._reported = ""

    def advance(self, now: float) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                return
            exit_code, signal_name = describe_exit(self.process.returncode)
            how = f"was killed by {signal_name}" if signal_name else f"ended with exit code {exit_code}"
            self.process = None
            if now - self._started_at >= STEADY_S:
                self._delay = FIRST_RETRY_S
            self._retry(now, how)
        elif now >= self._due:
            self._try_to_start(now)

    def _try_to_start(self, now: float) -> None:
        try:
            self.process = self._start()
        except OSError as error:
            self._retry(now, f"cannot be started: {error.strerror or error}")
        else:
            self._started_at = now

    def _retry(self, now: float, how: str) -> None:
        self._due = now + self._delay
        # A repeated failure is reported once.
        if how != self._reported:
            self._reported = how
            text = f"{self._name} {how}; {self._without}. It restarts after {self._delay:.0f} s"
            self._emit(Alert(kind=self._kind, text=text))
        self._delay = min(2 * self._delay, LONGEST_RETRY_S)

    def end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                return
