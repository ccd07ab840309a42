"""Which steps of a run count, and which its journal lacks: the only place that decides it.

What an attempt did after the step from which a later one continues does not count: that one does it again. A built-in
trainer names this step as it starts. A script resumes from a checkpoint of its own: the first metric of training that
goes on by a step shows it, and as long as there is none, all that earlier attempts did counts. Each metric's own curve
goes back by itself: see `curves`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tuiapp.trainers.contract.events import AnyEvent, Event, Metrics, RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.metrics import MAX_RANKS, MAX_STEP, STEP_TIME


@dataclass(slots=True)
class Attempts:
    """Follows the attempts of a run through its events."""

    present: RunStarted | None = None
    resuming: bool = False
    """Whether it is not known yet from which step the present attempt continues."""
    _first: dict[str, int] = field(default_factory=dict)
    """Metric -> the first step that the present attempt reports, while it is resuming."""

    def add(self, event: AnyEvent | Event) -> int | None:
        """Returns the step from which the present attempt continues, of the event that shows it; otherwise None.

        All that earlier events reported of later steps does not count any more.
        """
        if isinstance(event, RunStarted):
            if self.present is not None and event.attempt <= self.present.attempt:
                return None
            self.present, self.resuming = event, event.resumed_from is None
            self._first.clear()
            return None if event.resumed_from is None else min(max(0, event.resumed_from), MAX_STEP)
        if not (self.resuming and isinstance(event, Metrics) and event.is_training):
            return None
        before = [self._first.setdefault(name, event.first_step) for name in event.values]
        begun = max(before)
        if event.last_step <= begun:
            # A value at a step that nothing follows, as a constant at step 0, says nothing of where training goes on.
            return None
        self.resuming = False
        return max(0, begun - 1)


@dataclass(slots=True)
class StepZero:
    """Whether steps 0 to 399 are 400: if a metric of training that has come furthest has a value at step 0.

    A constant, or an evaluation before the first step, is none.
    """

    _names: set[str] = field(default_factory=set)
    """Metrics with a value at step 0."""
    _furthest: int = 0
    _counts: bool = False

    def add(self, event: Metrics) -> None:
        if not event.is_training:
            return
        if event.first_step == 0:
            self._names.update(event.values)
        if event.last_step >= self._furthest:
            begins = not self._names.isdisjoint(event.values)
            self._counts = begins or (self._counts and event.last_step == self._furthest)
            self._furthest = event.last_step

    def __bool__(self) -> bool:
        return self._counts


def counted_steps(events: Iterable[AnyEvent]) -> dict[int, int]:
    """Returns up to which step each attempt counts; an attempt of which all counts is not in it."""
    attempts, counted = Attempts(), dict[int, int]()
    for event in events:
        if (step := attempts.add(event)) is not None and attempts.present is not None:
            earlier = range(1, attempts.present.attempt)
            counted |= {attempt: min(step, counted.get(attempt, step)) for attempt in earlier}
    return counted


MAX_GAPS = 1000
"""Most gaps that are noted; a journal with more is damaged throughout."""

NAMED = 3


@dataclass(slots=True)
class Gaps:
    """Finds the steps that no rank's record covers, in the history in force.

    A rank that reports `step_time` reports every step, in order; one that does not may skip some. Steps are missing if
    an event begins later than the previous one ended, or if an attempt resumes from a later step than the attempt
    before has on record. What an attempt did after the step from which a later one resumes does not count.
    """

    last: dict[int, int] = field(default_factory=dict)
    """Each rank's last step; empty before the first attempt."""
    found: list[tuple[int, int]] = field(default_factory=list)
    """First and last step of each gap of each rank."""

    def add(self, event: Metrics) -> None:
        if STEP_TIME in event.values:
            before = self.last.get(event.rank)
            self.last[event.rank] = max(event.last_step, before or 0)
            if before is not None:
                self._note(before + 1, event.first_step - 1)

    def begin(self, step: int, world_size: int, *, by_metrics: bool = False) -> None:
        """Begins an attempt after `step`, 0 for the beginning, with `world_size` ranks (or devices).

        With `by_metrics` the attempt's first metrics show the step, not its start: what is missing before is unknown.
        """
        self.found = [(first, min(last, step)) for first, last in self.found if first <= step]
        if by_metrics:
            self.last = {rank: min(last, step) for rank, last in self.last.items() if last and rank < world_size}
            return
        for rank, last in self.last.items():
            if rank < world_size:
                self._note(last + 1, step)
        self.last = dict.fromkeys(range(min(world_size, MAX_RANKS)), step)

    def _note(self, first: int, last: int) -> None:
        if first <= last and len(self.found) < MAX_GAPS:
            self.found.append((first, last))

    @property
    def count(self) -> int:
        return len(self.found)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and last step of each gap, ascending, merged over all ranks."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted(self.found):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        return joined

    @property
    def short(self) -> str:
        """What is missing in a few words; "" for nothing."""
        spans = self.spans
        named = [f"{first:,} to {last:,}" if first < last else f"{first:,}" for first, last in spans[:NAMED]]
        left_out = f" and {len(spans) - NAMED} more" if len(spans) > NAMED else ""
        return f"steps {', '.join(named)}{left_out} missing" if spans else ""

    @property
    def words(self) -> str:
        """What is missing, in more words; "" for nothing."""
        short = self.short
        return f"{short} from the journal, with their evaluations and checkpoints" if short else ""


def gaps_in(events: Iterable[AnyEvent]) -> Gaps:
    """Returns the steps that a run's events, from its first on, lack."""
    gaps, attempts = Gaps(), Attempts()
    for event in events:
        if (step := attempts.add(event)) is not None and (begun := attempts.present) is not None:
            gaps.begin(step, begun.world_size, by_metrics=begun.resumed_from is None)
        if isinstance(event, Metrics):
            gaps.add(event)
    return gaps


def find_gaps(journal: Path) -> Gaps:
    """Searches a whole journal for missing steps."""
    return gaps_in(JournalReader(journal).rest())
