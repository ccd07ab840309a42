"""Keeps a run's journal, and what is made of it while it grows: the digest, the status, a note of trouble.

The journal alone is the truth. A fault or a full disk costs the digest or the status, never the run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec

from tuiapp.trainers.config.settings import current_settings
from tuiapp.trainers.contract.events import Alert, Checkpoint, Event, Summary
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter
from tuiapp.trainers.contract.lock import BEAT_S, LockNote, beat, signal_trouble, write_note
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.status import NOTHING, Details, Status, write_status
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.ranks import Rank
from tuiapp.trainers.state import snapshot
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.outcome import status_of, steps_on_all, summary_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.snapshot import Snapshot
from tuiapp.trainers.state.status import with_config
from tuiapp.trainers.state.text import format_bytes

RENEW_S = 1.0
"""How often the note is rewritten while the trouble lasts."""

END_WAIT_S = 600.0
"""How long a finished run waits for disk space to record its end."""

WRITE_EVERY_BYTES = 4 << 20
"""Least journal growth between two digests: a view reads as much in 0.1 s. It is never less than the digest's size."""

CHUNK_BYTES = 1 << 17
"""Bytes per read: the supervisor stays small."""

WRITE_S, WRITE_SHARE = 1.0, 0.01
"""Least time between two statuses, and the most part of it that writing takes: a file server may be slow."""


class JournalKeeper:
    """Writes a run's events to its journal; `lock` is the descriptor of the run's lock file."""

    def __init__(self, run: RunDir, lock: int | None, attempt: int) -> None:
        self._writer = JournalWriter(run.journal)
        self._digest = DigestWriter(run, self._writer)
        self._watch = JournalWatch(self._writer, lock, attempt)
        self._checkpoint_ack = CheckpointAck(self._writer)
        self._status = StatusWriter(run, self._writer, self._digest.state)
        self._started = monotonic()
        self._events: list[Event] = []
        """Events to be written next."""

    @property
    def seconds(self) -> float:
        """Returns the seconds that the present attempt has taken."""
        return monotonic() - self._started

    @property
    def state(self) -> RunState:
        """Returns the state to which all events that were added have brought the run."""
        self._writer.append(self._events)
        self._events.clear()
        return self._digest.state

    def summary(self, *, completed: bool) -> Summary:
        """Returns the run's summary, without figures if a fault keeps them from being found."""
        try:
            return summary_of(self.state, self.seconds, completed=completed)
        except Exception:
            traceback.print_exc()
            return Summary(seconds=self.seconds)

    @property
    def is_blocked(self) -> bool:
        """Tells whether events wait for the disk."""
        return self._writer.blocked is not None

    def add(self, event: Event) -> None:
        if isinstance(event, Checkpoint):
            self._checkpoint_ack.add(event)
        self._events.append(event)

    def write(self, saver: Rank | None, *, durable: bool = False) -> None:
        """Writes what was added; `saver` writes checkpoints."""
        if self._events or self.is_blocked:
            self._writer.append(self._events, durable=durable)
            self._events.clear()
            self._digest.write_due()
            self._status.write_due(self.seconds)
        self._writer.sync_due()
        self._checkpoint_ack.report_covered(steps_on_all(self._digest.state), saver)
        self._events += self._watch.check()

    def write_at_once(self) -> None:
        """Writes what was added to the journal alone, after a fault in this process: it may lie in all else here."""
        self._writer.append(self._events, durable=True)

    def wait_for_room(self, give_up: Callable[[], bool]) -> None:
        """Waits until a finished run's events are written; at most for a time, and not once `give_up()` is true."""
        self._watch.wait_for_room(give_up)
        self._events += self._watch.check()

    def close(self) -> None:
        """Ends it after the run's last event."""
        self._status.write(self.seconds)
        self._digest.write()
        self._writer.close()
        self._watch.end()


class DigestWriter:
    """Folds written events as every view does, and replaces the digest from time to time.

    The digest is a cache: a fault costs the digest, never the run. What the journal already holds is read first.
    """

    def __init__(self, run: RunDir, journal: JournalWriter) -> None:
        self._run, self._journal = run, journal
        self._last_line = b""
        self._failed = False
        self.state, offset = snapshot.load(run) or Snapshot(snapshot.new_state(), 0)
        for event in JournalReader(run.journal, offset, CHUNK_BYTES).rest():
            self._apply(event)
        self._written_at, self._size = journal.offset, 0
        journal.on_line = self._add

    def write_due(self) -> None:
        if self._journal.offset - self._written_at >= max(WRITE_EVERY_BYTES, self._size):
            self.write()

    def write(self) -> None:
        """Replaces the digest, unless lines wait for disk space: the digest would be ahead of the journal."""
        if self._failed or self._journal.waiting_bytes or not self._last_line:
            return
        self._written_at = self._journal.offset
        try:
            self._size = snapshot.save(self._run, self.state, self._journal.offset, self._last_line)
        except OSError:
            # The next one may find room.
            return
        except Exception:
            self._give_up()

    def _add(self, event: Event, line: bytes) -> None:
        self._last_line = line
        self._apply(event)

    def _apply(self, event: Event) -> None:
        try:
            apply(self.state, event)
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """Continues without a digest after a fault, which goes to supervisor.log; views then read the whole journal."""
        if not self._failed:
            traceback.print_exc()
        self._failed = True


class StatusWriter:
    """Replaces the run's status when events were written: for lists, which read no journal."""

    def __init__(self, run: RunDir, journal: JournalWriter, state: RunState) -> None:
        self._run, self._journal, self._state = run, journal, state
        self._base: Status | None = None
        """A status that has the run's configuration."""
        self._details = Details()
        self._written_at, self._due = -1, 0.0

    def write_due(self, seconds: float) -> None:
        if monotonic() >= self._due:
            self.write(seconds)

    def write(self, seconds: float) -> None:
        """Replaces it, unless lines wait for disk space; the present attempt has taken so many seconds."""
        if self._journal.waiting_bytes or self._journal.offset == self._written_at:
            return
        status = status_of(self._state, self._journal.offset, seconds)
        began = monotonic()
        self._base = self._base or with_config(self._run, NOTHING)
        status = msgspec.structs.replace(status, config=self._base.config, config_is=self._base.config_is)
        # Where there is no room, readers fold the journal.
        with suppress(OSError):
            self._details = write_status(self._run, status, self._state.facts, self._details)
            self._written_at = self._journal.offset
        now = monotonic()
        self._due = now + max(WRITE_S, (now - began) / WRITE_SHARE)


class JournalWatch:
    """Checks a journal's writer from time to time; `lock` is the descriptor of the run's lock file."""

    def __init__(self, journal: JournalWriter, lock: int | None, attempt: int) -> None:
        self._journal, self._lock = journal, lock
        self._note = LockNote.of_this_process(attempt)
        self._since: float | None = None
        self._reason = ""
        self._noted_at = 0.0
        self._beat_at = 0.0
        self._dropped = 0
        self._given_up = self._sync_reported = self._is_large = False
        self._large_bytes = current_settings().large_journal_mib << 20
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
            lost = self._journal.dropped - self._dropped
            result = f"{lost:,} events of that time are lost" if lost else "it now has everything reported meanwhile"
            text = f"the journal could not be written for {now - self._since:,.1f} s ({self._reason}); {result}"
            alerts.append(Alert(kind="journal", text=text))
            self._since, self._dropped = None, self._journal.dropped
            self._noted_at = 0.0
            self._update_note()
        if (failed := self._journal.sync_failed) is not None and not self._sync_reported:
            self._sync_reported = True
            why = f"the disk did not confirm the journal's last second ({failed.strerror or failed})"
            alerts.append(Alert(kind="journal", text=f"{why}: it may be lost if the machine goes down"))
        if self._journal.offset > self._large_bytes and not self._is_large:
            self._is_large = True
            text = f"the journal has grown beyond {format_bytes(self._large_bytes)}"
            alerts.append(Alert(kind="journal", severity="info", text=text))
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

    def _update_note(self, trouble: str = "") -> None:
        if self._lock is None:
            return
        note = msgspec.structs.replace(self._note, trouble=trouble, over=self._note.over and trouble != "")
        written = write_note(self._lock, note)
        blocked = self._journal.blocked
        signal_trouble(self._lock, None if written or blocked is None else blocked.errno, over=note.over)


class CheckpointAck:
    """Tells rank 0 which checkpoints the journal covers: it removes older ones only then."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._committed: list[int] = []

    def add(self, checkpoint: Checkpoint) -> None:
        self._committed.append(checkpoint.step)

    def report_covered(self, reached: int, writer: Rank | None) -> None:
        """Reports checkpoints now covered; call once the journal has all events up to `reached` on all ranks."""
        covered = [step for step in self._committed if step <= reached]
        if not covered or self._journal.blocked:
            return
        # What a crash of the machine could still lose is not covered.
        self._journal.sync()
        self._committed = [step for step in self._committed if step > reached]
        if writer is not None:
            for step in covered:
                writer.send(wire.Recorded(step))
