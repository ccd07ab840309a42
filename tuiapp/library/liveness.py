"""Whether a run that is followed goes on, seen with patience.

A lock that can be looked at tells for certain. A directory may also be out of reach for a while: its file server is
away, or it has another name for a moment. Meanwhile the supervisor's process is asked, where it is on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainers.contract.held_directory import HeldDirectory
from trainers.contract.lock_note import LockNote, read_note
from trainers.contract.process_identity import is_alive, machine
from trainers.contract.rundir import RunDir

AWAY_S = 10.0
"""So long a directory that is out of reach is waited for where no supervisor is known to live: how the run ended
meanwhile stands in there."""


class LivenessProbe:
    """Looks again and again whether a run goes on; to be made while it does.

    Args:
        run: Its directory.
        clock: Tells the time in seconds.
    """

    def __init__(self, run: RunDir, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._directory = HeldDirectory(run.path)
        self._machine = machine()
        self._unknown_since: float | None = None
        """Since when neither the lock nor a process tells that it lives."""
        self.note = read_note(run)
        """What its lock said last."""
        self.away = False
        """Whether the directory was out of reach at the last look."""
        self.trouble = ""
        """Why nothing new comes although the run goes on, in words; "" while all is well."""

    def __enter__(self) -> LivenessProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Look no more."""
        self._directory.close()

    def is_alive(self) -> bool:
        """Whether it goes on, or may do so; not when its supervisor is dead or its directory deleted."""
        seen = self._run.seen_live()
        self.away = seen is None
        if seen is None:
            return self._goes_on_unseen()
        self._unknown_since = None
        # One that cannot be read, or not any more, is empty.
        if (note := read_note(self._run)) != LockNote():
            self.note = note
        self.trouble = self.note.trouble if seen else ""
        return seen

    def _goes_on_unseen(self) -> bool:
        if self._run.is_gone() and self._directory.is_deleted():
            self.trouble = ""
            return False
        if self._machine and self.note.machine == self._machine and is_alive(self.note.supervisor):
            self._unknown_since = None
            self.trouble = f"{self._run.path} is out of reach; the run's supervisor lives on"
            return True
        now = self._clock()
        if self._unknown_since is None:
            self._unknown_since = now
        self.trouble = f"{self._run.path} is out of reach; waiting for it"
        return now - self._unknown_since < AWAY_S
