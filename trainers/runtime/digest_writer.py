"""Keeps a run's digest up to date while its supervisor writes the journal: see `trainers.contract.digest`."""

from __future__ import annotations

import traceback
from contextlib import suppress

from trainers.contract.digest import read_digest
from trainers.contract.digest_keeper import DigestKeeper
from trainers.contract.events import Event, encode
from trainers.contract.journal import JournalReader, JournalWriter
from trainers.contract.rundir import RunDir

WRITE_EVERY_BYTES = 4 << 20
"""How far the journal grows from one digest to the next: to read so much takes a view 0.1 s."""

MAX_UNREAD_BYTES = 16 << 20
"""What is read of the attempts before, at most: two seconds of processor time. Where their digest does not reach that
far, no new one is made."""

CHUNK_BYTES = 1 << 17
"""What is read at a time: the supervisor stays small."""


class DigestWriter:
    """Folds what the journal's writer writes, and replaces the digest now and then.

    The digest is a cache: whatever goes wrong with it costs the digest, never the run.

    Args:
        run: The run.
        journal: Its journal's writer; what stands in the journal already is read.
    """

    def __init__(self, run: RunDir, journal: JournalWriter) -> None:
        self._run, self._journal = run, journal
        self._keeper: DigestKeeper | None = None
        try:
            self._keeper = _read_keeper(run, journal.offset)
        except Exception:
            self._give_up()
        self._written_at = journal.offset
        journal.on_line = self._add

    def write_due(self) -> None:
        """Replace the digest if the journal has grown enough since."""
        if self._journal.offset - self._written_at >= WRITE_EVERY_BYTES:
            self.write()

    def write(self) -> None:
        """Replace the digest; not while lines wait for room on the disk, which the digest would be ahead of."""
        if self._keeper is None or self._journal.waiting_bytes:
            return
        self._written_at = self._journal.offset
        with suppress(OSError):
            self._keeper.write(self._run, self._journal.offset)

    def _add(self, event: Event, line: bytes) -> None:
        if self._keeper is None:
            return
        try:
            self._keeper.add(event, line)
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """Go on without a digest after a fault, which the supervisor's log shows; views read all then."""
        traceback.print_exc()
        self._keeper = None


def _read_keeper(run: RunDir, end: int) -> DigestKeeper | None:
    """What the journal tells up to its end; None where there is too much to read."""
    digest = read_digest(run) if end else None
    reader = JournalReader(run.journal, digest.offset if digest else 0, CHUNK_BYTES)
    if end - reader.offset > MAX_UNREAD_BYTES:
        return None
    keeper = DigestKeeper(digest)
    while events := reader.read():
        for event in events:
            keeper.add(event, encode(event))
    return keeper
