"""Reports to rank 0 which of its checkpoints the journal covers: it must not delete the newest of those."""

from __future__ import annotations

from trainers.contract.events import Checkpoint
from trainers.contract.journal import JournalWriter
from trainers.runtime import wire
from trainers.runtime.agreement import Voter


class Recorder:
    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._committed: list[int] = []

    def add(self, checkpoint: Checkpoint) -> None:
        self._committed.append(checkpoint.step)

    def report_covered(self, reached: int, writer: Voter | None) -> None:
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
