"""Repeats what a script says of its run, so that it stays among a journal's last lines, which lists of runs read."""

from __future__ import annotations

from trainers.contract.events import Event, Facts
from trainers.contract.journal import JournalWriter
from trainers.contract.peek import TAIL_BYTES, peek_journal
from trainers.contract.rundir import RunDir

REPEAT_BYTES = TAIL_BYTES // 2
"""Journal growth between two repetitions: what a poll adds leaves the last one within `TAIL_BYTES`."""


class FactsKeeper:
    """Joins the facts of all attempts."""

    def __init__(self, run: RunDir, journal: JournalWriter) -> None:
        self._journal = journal
        self._facts = peek_journal(run.journal).facts()
        self._written_at = journal.offset

    def add(self, event: Event) -> None:
        if isinstance(event, Facts):
            self._facts = self._facts.followed_by(event)

    def due(self) -> list[Facts]:
        """The joined facts, if there are any and the journal has grown enough since the last time."""
        known = self._facts.name or self._facts.config or self._facts.summary
        if not known or self._journal.offset - self._written_at < REPEAT_BYTES:
            return []
        self._written_at = self._journal.offset
        return [self._facts.followed_by(Facts())]
