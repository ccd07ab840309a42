"""What a supervisor, and a node's agent, wait for: readable descriptors, and requests to the run.

Requests come by files in the run's directory, by signals, and by the removal of that directory.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable
from typing import TypeAlias

from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import PRUNED, CheckpointRequested, ProfileRequested, StopRequested
from tuiapp.trainers.contract.rundir import HeldDirectory, RunDir

Request: TypeAlias = StopRequested | CheckpointRequested | ProfileRequested

SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1)
"""Stop, and a second time stop now; stop now; save a checkpoint now."""

MOVED_S = 30.0
"""A directory that was moved may come back, or a link may replace it: the run gives up after this long."""


class Reactor:
    """Calls back when a file descriptor becomes readable."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def forget(self, fd: int) -> None:
        """Ends `watch`; does nothing if the descriptor is not watched."""
        if fd >= 0 and fd in self._selector.get_map():
            self._selector.unregister(fd)

    def wait(self, seconds: float) -> None:
        """Waits until a descriptor is readable, at most so long, and calls what watches those that are."""
        for key, _ in self._selector.select(seconds):
            key.data()


_BY = {"job-ends": "Slurm", "time-limit": "Slurm's time limit", PRUNED: PRUNED}


class Requests:
    """`in_job`: Slurm ends a job by SIGTERM to each of its processes, so a second one means nothing more."""

    def __init__(self, run: RunDir, clock: Callable[[], float] = time.monotonic, *, in_job: bool = False) -> None:
        self._run, self._clock, self._in_job = run, clock, in_job
        self._directory = HeldDirectory(run.path)
        self._missing_since: float | None = None
        self._signals: list[int] = []
        self._removed = False

    def note_signal(self, number: int) -> None:
        """Records one of `SIGNALS`; the next `take` handles it, outside the signal handler."""
        self._signals.append(number)

    def take(self, *, stopping: bool) -> list[Request]:
        """Returns the requests since the last call; while `stopping` a further SIGTERM means now."""
        requests: list[Request] = []
        for command in sidecars.take_commands(self._run.commands):
            if command == "checkpoint":
                requests.append(CheckpointRequested(by="command"))
            elif command.startswith("profile="):
                requests.append(ProfileRequested(steps=int(command.removeprefix("profile=")), by="command"))
            else:
                now = command == "stop-now"
                # What a search gives up is not worth a checkpoint.
                save = not now and command != PRUNED
                requests.append(StopRequested(now=now, save=save, by=_BY.get(command, "command")))
        if not self._removed and self._is_given_up():
            # Nobody could see or stop it.
            self._removed = True
            requests.append(StopRequested(now=True, by="removal"))
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGUSR1:
                requests.append(CheckpointRequested(by="SIGUSR1"))
            elif number == signal.SIGQUIT:
                requests.append(StopRequested(now=True, save=False, by="SIGQUIT"))
            elif not (stopping and self._in_job):
                by = _BY["job-ends"] if self._in_job else "SIGTERM"
                requests.append(StopRequested(now=stopping, save=not stopping, by=by))
                stopping = True
        return requests

    def _is_given_up(self) -> bool:
        """Tells whether the directory is removed, or has been away from its path for too long."""
        if not self._run.is_gone():
            self._missing_since = None
            return False
        if self._missing_since is None:
            self._missing_since = self._clock()
        return self._directory.is_deleted() or self._clock() - self._missing_since >= MOVED_S
