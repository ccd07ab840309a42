"""The curves of one rank, and when each step was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from trainers.contract.events import Steps
from tuiapp.state.series import LIMIT, Floats, Integers, Series

StepMetric: TypeAlias = Literal["loss", "examples/s", "step time", "learning rate", "gradient norm"]

STEP_METRICS: tuple[StepMetric, ...] = ("loss", "examples/s", "step time", "learning rate", "gradient norm")

BUCKETS = 4096
"""Of a curve of one of the first ranks."""

SAMPLE_BUCKETS = 1024
"""Of a curve of samples."""

ALL_BUCKETS = 65_536
"""About how many the same curve of all ranks may have: the higher a rank's number, the fewer it gets."""

MAX_COUNT = 2.0**31
"""Of the steps that share an entry."""

WAITING_ENTRIES = 8192
"""Entries of events that wait to be added to the curves; taken together they cost a tenth."""


LOSS, SECONDS, RATE, LEARNING_RATE, LOW, HIGH = range(6)
"""The rows of a table of entries; the last two are there where windows of steps share an entry."""

ENTRY_ROWS, WINDOW_ROWS = LOW, HIGH + 1


class Columns(NamedTuple):
    """Entries of one rank, as they are added to its curves."""

    steps: Integers
    """Where each entry stands: a window of steps at its last one."""
    table: Floats
    """A row for each metric but the gradient norm; not a number where a value is missing."""
    norm_steps: Integers
    """Where gradient norms were told."""
    norms: Floats

    @property
    def in_order(self) -> bool:
        """Whether its steps never go back."""
        return not (self.steps[1:] < self.steps[:-1]).any()


def columns_of(events: Sequence[Steps]) -> Columns:
    """What events of one rank tell, in the order of their entries."""
    steps, counts = _steps(events)
    sizes = [len(each.losses) for each in events]
    windows = any(each.counts for each in events)
    table = np.empty((WINDOW_ROWS if windows else ENTRY_ROWS, len(steps)))
    table[LOSS] = _column([each.losses for each in events], sizes)
    table[SECONDS] = _column([each.seconds for each in events], sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        table[RATE] = _column([each.examples for each in events], sizes) / (table[SECONDS] * counts)
    table[LEARNING_RATE] = _column([each.learning_rates for each in events], sizes)
    if windows:
        table[LOW] = _column([each.losses_min or each.losses for each in events], sizes)
        table[HIGH] = _column([each.losses_max or each.losses for each in events], sizes)
    norms = [each.gradient_norms for each in events]
    told = [place for place, norm in enumerate(norms) if norm]
    if not told:
        return Columns(steps, table, np.empty(0, np.int64), np.empty(0))
    values = _column([norms[place] or () for place in told], [sizes[place] for place in told])
    at, _ = _steps([events[place] for place in told])
    return Columns(steps, table, at, values)


def _joined(parts: Sequence[Columns]) -> Columns:
    """Columns one after the other."""
    rows = max(len(part.table) for part in parts)
    # Where steps have entries of their own, the least and the greatest loss are the loss.
    tables = [part.table if len(part.table) == rows else part.table[[*range(ENTRY_ROWS), LOSS, LOSS]] for part in parts]
    return Columns(
        np.concatenate([part.steps for part in parts]),
        np.concatenate(tables, axis=1),
        np.concatenate([part.norm_steps for part in parts]),
        np.concatenate([part.norms for part in parts]),
    )


class RankCurves:
    """What a rank told of each step, in bounded memory.

    Events are put aside and added many at a time, when a curve is looked at or enough of them wait.

    Args:
        rank: Its number.
    """

    def __init__(self, rank: int = 0) -> None:
        self._capacity = max(128, min(BUCKETS, ALL_BUCKETS // (rank + 1)))
        self._series: dict[StepMetric, Series] = {}
        self._waiting: list[Steps] = []
        self._waiting_columns: list[Columns] = []
        """They were there before the events that wait."""
        self._entries = 0
        # Not as many for all ranks: they report in step, and all curves settled at once would hold up a key.
        self._most_waiting = WAITING_ENTRIES - rank % 8 * (WAITING_ENTRIES // 16)

    def add(self, event: Steps) -> None:
        """Take in a batch of steps."""
        self._waiting.append(event)
        self._grow(len(event.losses))

    def add_columns(self, columns: Columns) -> None:
        """Take in the entries of many batches, in order."""
        if self._waiting:
            self._settle()
        self._waiting_columns.append(columns)
        self._grow(len(columns.steps))

    def __getitem__(self, metric: StepMetric) -> Series:
        """One of the curves, with all that was taken in."""
        self._settle()
        return self._series.get(metric) or self._series.setdefault(metric, Series(self._capacity))

    def truncate(self, step: int) -> None:
        """Forget that step and all later ones."""
        self._settle()
        for series in self._series.values():
            series.truncate(step)

    def _grow(self, entries: int) -> None:
        self._entries += entries
        if self._entries >= self._most_waiting:
            self._settle()

    def _settle(self) -> None:
        events, self._waiting = self._waiting, []
        parts, self._waiting_columns = self._waiting_columns, []
        self._entries = 0
        if events:
            together = columns_of(events)
            # Out of order: one by one they find their places.
            parts += [together] if together.in_order else [columns_of([each]) for each in events]
        if parts:
            joined = _joined(parts) if len(parts) > 1 else parts[0]
            for columns in [joined] if joined.in_order else parts:
                self._add(columns)

    def _add(self, columns: Columns) -> None:
        steps, table = columns.steps, columns.table
        windows = len(table) == WINDOW_ROWS
        self._of("loss").add(steps, table[LOSS], *(table[LOW:] if windows else ()))
        self._of("examples/s").add(steps, table[RATE])
        self._of("step time").add(steps, table[SECONDS])
        self._of("learning rate").add(steps, table[LEARNING_RATE])
        if len(columns.norms):
            self._of("gradient norm").add(columns.norm_steps, columns.norms)

    def _of(self, metric: StepMetric) -> Series:
        return self._series.setdefault(metric, Series(self._capacity))


class SampledCurve:
    """Values that come one at a time, each at the step that the run had reached."""

    def __init__(self) -> None:
        self._series = Series(SAMPLE_BUCKETS)
        self._steps: list[int] = []
        self._values: list[float] = []

    def append(self, step: int, value: float) -> None:
        """Take in a value; steps do not go back but after `truncate`."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= WAITING_ENTRIES:
            self._settle()

    @property
    def series(self) -> Series:
        """All that was taken in."""
        self._settle()
        return self._series

    def truncate(self, step: int) -> None:
        """Forget that step and all later ones."""
        self._settle()
        self._series.truncate(step)

    def _settle(self) -> None:
        if self._steps:
            self._series.add(np.array(self._steps, np.int64), np.array(self._values))
            self._steps, self._values = [], []


class Timeline:
    """When each step was made, in seconds of the run, the time between attempts left out."""

    def __init__(self) -> None:
        self._steps = [0]
        self._times = [0.0]
        self._start: float | None = None
        self._base = 0.0

    def begin(self, time: float, step: int) -> None:
        """An attempt begins.

        Args:
            time: When, in seconds since the epoch.
            step: The one it goes on from; 0 for none.
        """
        self._base = float(np.interp(step, self._steps, self._times))
        keep = max(1, bisect_right(self._steps, step))
        del self._steps[keep:], self._times[keep:]
        self._start = time

    def add(self, time: float, step: int) -> None:
        """A step was made at that time; one that others were ahead of says nothing new."""
        if self._start is None:
            self._start = time
        if step > self._steps[-1]:
            self._steps.append(step)
            self._times.append(max(self._times[-1], self._base + time - self._start))
            if len(self._steps) > BUCKETS:
                del self._steps[1:-1:2], self._times[1:-1:2]

    def seconds(self, steps: Floats) -> Floats:
        """When these steps were, in seconds of the run."""
        return np.interp(steps, self._steps, self._times)

    def steps(self, seconds: Floats) -> Floats:
        """Which steps were made at these seconds of the run."""
        return np.interp(seconds, self._times, self._steps)


def _steps(waiting: Sequence[Steps]) -> tuple[Integers, Floats]:
    """The steps at which the entries of events stand, a window of steps at its last one; and steps per entry."""
    sizes = [len(each.losses) for each in waiting]
    counts = _counts(waiting, sizes)
    done = np.cumsum(counts, dtype=np.int64)
    starts = np.cumsum([0, *sizes[:-1]])
    before = np.where(starts > 0, done[starts - 1], 0)
    firsts = np.array([each.first_step for each in waiting], np.int64)
    return np.repeat(firsts - 1 - before, sizes) + done, counts


def _counts(waiting: Sequence[Steps], sizes: list[int]) -> Floats:
    """Steps per entry; one at least, whatever a journal says."""
    ones = {size: (1,) * size for size in set(sizes)}
    told = [each.counts or ones[size] for each, size in zip(waiting, sizes, strict=True)]
    return np.clip(np.nan_to_num(_column(told, sizes), nan=1.0), 1.0, MAX_COUNT)


def _column(fields: Sequence[Sequence[float | None]], sizes: list[int]) -> Floats:
    """One field of all events as one array, as many values of each as it has losses."""
    if list(map(len, fields)) != sizes:
        fields = [[*field[:size], *[None] * (size - len(field))] for field, size in zip(fields, sizes, strict=True)]
    if fields[0] == fields[-1] and fields.count(fields[0]) == len(fields):
        # What stays the same from event to event, as counts and examples do, is turned into floats once.
        return np.tile(_column_of(fields[:1], sizes[0]), len(fields))
    return _column_of(fields, sum(sizes))


def _column_of(fields: Sequence[Sequence[float | None]], size: int) -> Floats:
    try:
        return np.fromiter(chain.from_iterable(fields), np.float64, size)
    except (TypeError, OverflowError):
        # A loss that is not finite, or a whole number beyond all floats.
        return np.array([_bounded(value) for value in chain.from_iterable(fields)], np.float64)


def _bounded(value: float | None) -> float | None:
    return value if value is None or abs(value) <= LIMIT else None
