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
        self._covered: list[tuple[int, int]] = []
        """Step, and how far the disk must have the journal."""

    def add(self, checkpoint: Checkpoint) -> None:
        self._committed.append(checkpoint.step)

    def report_covered(self, reached: int, writer: Voter | None) -> None:
        """Reports checkpoints now covered; call once the journal has all events up to `reached` on all ranks."""
        if reached_now := [step for step in self._committed if step <= reached]:
            self._covered += [(step, self._journal.end) for step in reached_now]
            self._committed = [step for step in self._committed if step > reached]
            self._journal.sync_soon()
        # What a crash of the machine could still lose is not covered.
        while self._covered and self._covered[0][1] <= self._journal.synced:
            step, _ = self._covered.pop(0)
            if writer is not None:
                writer.send(wire.Recorded(step))
