"""Whether a watched run is live, tolerant of a directory that is temporarily unreachable.

The run's lock gives a certain answer. While its directory is unreachable (its file server is down, or it is renamed
for a moment), the supervisor's process is checked instead, if it is on this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tuiapp.trainers.contract.lock import Liveness, LockNote
from tuiapp.trainers.contract.process_identity import is_alive, machine
from tuiapp.trainers.contract.rundir import HeldDirectory, RunDir


def keep_watched(run: RunDir) -> Liveness:
    """Looks who has a run; never waits.

    Starts the process that watches its Slurm job, or the keeper of its queue, where there is none.
    """
    liveness = run.liveness()
    if liveness is Liveness.WAITING:
        from tuiapp.trainers.experiments.queue import keep_alive

        keep_alive(run)
    if liveness is Liveness.UNWATCHED_JOB:
        # Imported by few views otherwise.
        from tuiapp.trainers.launch import watch_queue

        watch_queue(run)
    return liveness


def keep_searched(runs_dir: Path) -> None:
    """Starts the searches of a directory of runs that were killed."""
    if os.path.isdir(runs_dir / "studies"):
        # Imported by few views otherwise.
        from tuiapp.trainers.experiments.sweep import keep_searches

        keep_searches(runs_dir)


LATE_S = 5.0
"""How long to wait for the end of a run of another machine once its lock is free: a cache may not show it yet."""
AWAY_S = 10.0
"""How long to wait for an unreachable directory when no supervisor is known to be alive: it says how the run ended."""


class LivenessProbe:
    def __init__(self, run: RunDir, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._directory = HeldDirectory(run.path)
        self._machine = machine()
        self._unknown_since: float | None = None  # since when neither the lock nor a process shows that it is alive
        self._free_since: float | None = None
        self.note = run.lock_note()  # last content of its lock
        self._elsewhere = self.note.machine not in ("", self._machine)  # a cache may be between
        self.unreachable = False  # directory unreachable at the last poll
        self.trouble = ""  # why a live run reports nothing new; "" while all is well

    def __enter__(self) -> LivenessProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._directory.close()

    def is_alive(self) -> bool:
        """Whether it is or may be live; False once its supervisor is dead or its directory deleted."""
        liveness = keep_watched(self._run)
        self.unreachable = liveness is Liveness.UNKNOWN
        if self.unreachable:
            return self._is_process_alive()
        self._unknown_since = None
        # A note that cannot be read, or no longer, is empty.
        if (note := self._run.lock_note()) != LockNote():
            self.note = note
            self._elsewhere |= note.machine not in ("", self._machine)
        if liveness.is_live:
            self._free_since, self.trouble = None, self.note.trouble
            return True
        now, self.trouble = self._clock(), ""
        if self._free_since is None:
            self._free_since = now
        return self._elsewhere and now - self._free_since < LATE_S

    def _is_process_alive(self) -> bool:
        if self._run.is_gone() and self._directory.is_deleted():
            self.trouble = ""
            return False
        if self._machine and self.note.machine == self._machine and is_alive(self.note.supervisor):
            self._unknown_since = None
            self.trouble = f"{self._run.path} is unreachable; the run's supervisor is still alive"
            return True
        try:
            os.lstat(self._run.lock)
        except FileNotFoundError:
            if not self._run.is_gone():
                self.trouble = ""
                return False
        except OSError as error:
            # ESTALE, EIO: it says nothing of the run.
            self.trouble = f"{self._run.path} is unreachable ({error.strerror}); waiting for it"
            return True
        now = self._clock()
        if self._unknown_since is None:
            self._unknown_since = now
        self.trouble = f"{self._run.path} is unreachable; waiting for it"
        return now - self._unknown_since < AWAY_S
