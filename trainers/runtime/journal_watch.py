"""Reports that the journal cannot be written: in the lock file meanwhile, in the journal afterwards."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from time import monotonic

import msgspec

from trainers.contract.events import Alert
from trainers.contract.journal import JournalWriter
from trainers.contract.lock_note import LockNote, signal_trouble, write_note
from trainers.contract.process_identity import identity, machine
from trainers.contract.rundir import BEAT_S, beat

RENEW_S = 1.0
"""How often the note is rewritten while the trouble lasts."""

END_WAIT_S = 600.0
"""How long a finished run waits for disk space to record its end."""


class JournalWatch:
    """Checks a journal's writer from time to time; `lock` is the descriptor of the run's lock file."""

    def __init__(self, journal: JournalWriter, lock: int | None, attempt: int) -> None:
        self._journal, self._lock = journal, lock
        self._note = LockNote(
            attempt=attempt, supervisor=identity(os.getpid()), machine=machine(), host=socket.gethostname()
        )
        self._since: float | None = None
        self._reason = ""
        self._noted_at = 0.0
        self._beat_at = 0.0
        self._dropped = 0
        self._given_up = self._sync_reported = False
        self._wait_until: float | None = None
        self._update_note()

    def check(self) -> list[Alert]:
        """Updates the note; returns alerts for the journal once it can be written again."""
        blocked, now = self._journal.blocked, monotonic()
        if self._lock is not None and now - self._beat_at >= BEAT_S:
            self._beat_at = now
            beat(self._lock)
        if blocked is not None:
            if self._since is None:
                self._since = now
            self._reason = blocked.strerror or str(blocked)
            if now - self._noted_at >= RENEW_S:
                self._noted_at = now
                self._update_note(self._trouble(now - self._since))
            return []
        alerts = []
        if self._since is not None:
            alerts.append(Alert(kind="journal", text=self._afterwards(now - self._since)))
            self._since, self._dropped = None, self._journal.dropped
            self._noted_at = 0.0
            self._update_note()
        if (failed := self._journal.sync_failed) is not None and not self._sync_reported:
            self._sync_reported = True
            why = f"the disk did not confirm the journal's last second ({failed.strerror or failed})"
            alerts.append(Alert(kind="journal", text=f"{why}: it may be lost if the machine goes down"))
        return alerts

    def wait_for_room(self, give_up: Callable[[], bool]) -> None:
        """Retries a finished run's pending writes until `give_up`, for a bounded time over all calls."""
        if self._wait_until is None:
            self._wait_until = monotonic() + END_WAIT_S
        self._note = msgspec.structs.replace(self._note, over=True)
        self._noted_at = 0.0
        while self._journal.blocked is not None and monotonic() < self._wait_until and not self._given_up:
            self.check()
            self._given_up = give_up()
            time.sleep(0.2)
            self._journal.flush()

    def end(self) -> None:
        """Notes that no machine has the run any more."""
        self._note = msgspec.structs.replace(self._note, machine="")
        self._update_note()

    def _trouble(self, seconds: float) -> str:
        waiting = f"{self._journal.waiting_bytes / 1024:,.0f} KiB buffered"
        lost = f", {self._journal.dropped:,} events lost" if self._journal.dropped else ""
        then = "The run has ended and waits for disk space" if self._note.over else "Training continues"
        return f"the journal has not been writable for {seconds:,.0f} s: {self._reason}. {then}; {waiting}{lost}"

    def _afterwards(self, seconds: float) -> str:
        lost = self._journal.dropped - self._dropped
        came = f"{lost:,} events of that time are lost" if lost else "it now has everything reported meanwhile"
        return f"the journal could not be written for {seconds:,.1f} s ({self._reason}); {came}"

    def _update_note(self, trouble: str = "") -> None:
        if self._lock is None:
            return
        note = msgspec.structs.replace(self._note, trouble=trouble, over=self._note.over and trouble != "")
        written = write_note(self._lock, note)
        blocked = self._journal.blocked
        signal_trouble(self._lock, None if written or blocked is None else blocked.errno, over=note.over)
