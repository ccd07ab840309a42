"""Repeats what lists of runs show of a run, so that it stays among a journal's last lines, which is all they read."""

from __future__ import annotations

from collections.abc import Callable

from trainers.contract.effort import Earlier
from trainers.contract.events import Event, Facts, SoFar, Summary, stalled_by
from trainers.contract.journal import JournalWriter
from trainers.contract.peek import TAIL_BYTES, peek_journal
from trainers.contract.rundir import RunDir

REPEAT_BYTES = TAIL_BYTES // 2
"""Journal growth between two repetitions: what a poll adds leaves the last one within `TAIL_BYTES`."""


class TailKeeper:
    """Joins the facts of all attempts; `summary` returns what the run has come to, `earlier` what it has of them."""

    def __init__(
        self, run: RunDir, journal: JournalWriter, summary: Callable[[], Summary], earlier: Callable[[], Earlier]
    ) -> None:
        self._journal, self._summary, self._earlier = journal, summary, earlier
        self._told = earlier()
        self._facts = peek_journal(run.journal).facts()
        self._stalled = ""
        self._written_at = journal.offset

    def add(self, event: Event) -> None:
        if isinstance(event, Facts):
            self._facts = self._facts.followed_by(event)
        self._stalled = stalled_by(event, self._stalled)

    def due(self) -> list[Event]:
        """Returns what is repeated, if the journal has grown enough, or earlier attempts count otherwise than told.

        With its first step a script tells from which one it resumes.
        """
        grown = self._journal.offset - self._written_at >= REPEAT_BYTES
        return self.repeat() if grown or self._earlier() != self._told else []

    def repeat(self) -> list[Event]:
        self._written_at, self._told = self._journal.offset, self._earlier()
        known = self._facts.name or self._facts.config or self._facts.summary
        facts = [self._facts.followed_by(Facts())] if known else []
        return [*facts, SoFar(summary=self._summary(), stalled=self._stalled)]
