"""Keeps a run's digest up to date while its supervisor writes the journal: see `trainers.contract.digest`."""

from __future__ import annotations

import traceback
from contextlib import suppress

from trainers.contract.digest import read_digest
from trainers.contract.digest_keeper import DigestKeeper
from trainers.contract.effort import Earlier
from trainers.contract.events import Event, encode
from trainers.contract.journal import JournalReader, JournalWriter
from trainers.contract.rundir import RunDir

WRITE_EVERY_BYTES = 4 << 20
"""Least journal growth between two digests: a view reads as much in 0.1 s. It is never less than the digest's size."""

MAX_UNREAD_BYTES = 16 << 20
"""Most bytes read of earlier attempts, in two seconds of processor time; if more are unread, no digest is made."""

CHUNK_BYTES = 1 << 17
"""Bytes per read: the supervisor stays small."""


class DigestWriter:
    """Folds written events into the digest, and replaces the file from time to time.

    The digest is a cache: a fault costs the digest, never the run. What the journal already holds is read first.
    """

    def __init__(self, run: RunDir, journal: JournalWriter) -> None:
        self._run, self._journal = run, journal
        self._keeper: DigestKeeper | None = None
        try:
            self._keeper = _read_keeper(run, journal.offset)
        except Exception:
            self._give_up()
        self._written_at, self._size = journal.offset, 0
        journal.on_line = self._add

    @property
    def earlier(self) -> Earlier:
        """What earlier attempts count for; nothing where no digest is made."""
        return self._keeper.earlier if self._keeper is not None else Earlier()

    def write_due(self) -> None:
        if self._journal.offset - self._written_at >= max(WRITE_EVERY_BYTES, self._size):
            self.write()

    def write(self) -> None:
        """Replaces the digest, unless lines wait for disk space: the digest would be ahead of the journal."""
        if self._keeper is None or self._journal.waiting_bytes:
            return
        self._written_at = self._journal.offset
        with suppress(OSError):
            self._keeper.write(self._run, self._journal.offset)
            self._size = self._run.digest.stat().st_size

    def _add(self, event: Event, line: bytes) -> None:
        if self._keeper is None:
            return
        try:
            self._keeper.add(event, line)
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """Continues without a digest after a fault, which goes to supervisor.log; views then read the whole journal."""
        traceback.print_exc()
        self._keeper = None


def _read_keeper(run: RunDir, end: int) -> DigestKeeper | None:
    """Reads the journal up to its end; None if there is too much to read."""
    digest = read_digest(run) if end else None
    reader = JournalReader(run.journal, digest.offset if digest else 0, CHUNK_BYTES)
    if end - reader.offset > MAX_UNREAD_BYTES:
        return None
    keeper = DigestKeeper(digest)
    while events := reader.read():
        for event in events:
            keeper.add(event, encode(event))
    return keeper
