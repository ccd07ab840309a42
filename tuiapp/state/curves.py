"""The curves of a run by rank and metric, and when each step was: the same for one run's screen and for comparisons."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np

from trainers.contract.curve import Curve
from trainers.contract.digest import Digest
from trainers.contract.events import AnyEvent, Metrics, RunStarted
from trainers.contract.metrics import (
    EXAMPLES,
    MAX_RANKS,
    MAX_STEP,
    RATE,
    STEP_TIME,
    TEST_ACCURACY,
    TEST_LOSS,
    sound_entries,
)
from trainers.contract.timeline import Timeline
from tuiapp.state.series import COUNT, Floats, Integers, Series

Axis: TypeAlias = Literal["step", "time", "epoch"]

AXES: tuple[Axis, ...] = ("step", "time", "epoch")

ALL = -1
"""Stands for all ranks together, in the place of a rank's number."""

BUCKETS = 4096
"""Of a curve of one of the first ranks."""

ALL_BUCKETS = 65_536
"""About how many the same curve of all ranks may have: the higher a rank's number, the fewer it gets."""

MEAN_BUCKETS = 2048
"""Of a curve of all ranks together: more than any terminal has dots across."""

SAMPLE_BUCKETS = 1024
"""Of a curve of samples."""

VALUES_PER_BUCKET = 8
"""So many times as many values of a rank as a curve has buckets wait to be added: together they cost little."""

WAITING_SAMPLES = 8192

NAN = float("nan")

MAX_NAMES = 1000
"""Metrics of a run that have curves."""


class RankCurves:
    """What one rank reported, in bounded memory.

    Events are put aside, and added to a curve when that one is looked at, or to all of them when enough wait: most
    curves are hardly ever looked at.

    Args:
        rank: Its number, or `ALL`.
        capacity: Most buckets of a curve.
    """

    def __init__(self, rank: int, capacity: int) -> None:
        self._capacity = capacity
        self._series: dict[str, Series] = {}
        self._waiting: list[Metrics] = []
        self._values = 0
        """How many wait, of all metrics."""
        self._given: dict[str, int] = {}
        """How many of the events that wait a curve has been given."""
        # Not as many for all ranks: they report in step, and all curves settled at once would hold up a key.
        self._most = VALUES_PER_BUCKET * capacity * (1 - rank % 8 / 16)
        self._laid_out: tuple[int, int, Integers, Floats] | None = None
        """The steps of the events from one place to another, as they were worked out last, and their counts."""
        self.scale = 1.0
        """What a derived rate is multiplied with."""

    def add(self, event: Metrics, entries: int) -> None:
        """Take in a batch of so many entries, whose lists go together."""
        self._waiting.append(event)
        self._values += entries * len(event.values)
        if self._values >= self._most:
            self._settle()

    def __getitem__(self, name: str) -> Series:
        """One of the curves, with all that was taken in; an empty one for a metric that was never reported."""
        if self._given.get(name, 0) < len(self._waiting):
            self._give(name)
        return self._series.get(name) or Series(1)

    def __contains__(self, name: str) -> bool:
        """Whether the rank has reported a metric."""
        return len(self[name]) > 0

    def truncate(self, step: int) -> None:
        """Forget that step and all later ones."""
        self._settle()
        for series in self._series.values():
            series.truncate(step)

    def merge(self, name: str, series: Series) -> None:
        """Take in a whole curve."""
        self._settle()
        self._of(name).merge(series)

    def _settle(self) -> None:
        """Give all curves what they have not been given."""
        names = dict.fromkeys(chain.from_iterable(event.values for event in self._waiting))
        for name in (*names, RATE):
            self._give(name)
        self._waiting, self._values, self._given, self._laid_out = [], 0, {}, None

    def _give(self, name: str) -> None:
        start, stop = self._given.get(name, 0), len(self._waiting)
        self._given[name] = stop
        first, second = (EXAMPLES, STEP_TIME) if name == RATE else (name, name)
        told = [event for event in self._waiting[start:] if first in event.values and second in event.values]
        if not told:
            return
        laid_out = self._laid_out
        if laid_out is None or laid_out[:2] != (start, stop) or len(told) < stop - start:
            laid_out = (start, stop, *_steps(told))
            if len(told) == stop - start:
                self._laid_out = laid_out
        _, _, steps, counts = laid_out
        bounds: tuple[Floats, ...] = ()
        if name == RATE:
            with np.errstate(divide="ignore", invalid="ignore"):
                seconds = _joined([event.values[STEP_TIME] for event in told]) * counts
                values = _joined([event.values[EXAMPLES] for event in told]) / seconds * self.scale
        else:
            values = _joined([event.values[name] for event in told])
            if any(event.lows and event.highs for event in told):
                # Where steps have entries of their own, the least and the greatest value are the value.
                bounds = tuple(_joined([_bound(event, side, name) for event in told]) for side in ("lows", "highs"))
        if (steps[1:] < steps[:-1]).any():
            order = np.argsort(steps, kind="stable")
            steps, values, bounds = steps[order], values[order], tuple(each[order] for each in bounds)
        self._of(name).add(steps, values, *bounds)

    def _of(self, name: str) -> Series:
        if name not in self._series:
            self._series[name] = Series(self._capacity)
        return self._series[name]


class Curves:
    """A run's curves. What it keeps is bounded, however long the run; nothing raises for what an event says.

    Args:
        by_rank: Whether each rank has curves of its own. Otherwise a bucket joins the values of all ranks at its
            steps: its mean is the mean over the ranks, in whatever order they report; the rate is that of all ranks.
    """

    def __init__(self, *, by_rank: bool = True) -> None:
        self.names: dict[str, None] = {}
        """The metrics in the order in which they were first reported."""
        self.full = False
        """Whether metrics were left out: there were `MAX_NAMES` before them."""
        self.timeline = Timeline()
        self.steps_per_epoch = 0
        """0 when not known."""
        self.evaluated = 0
        """The last step of an evaluation; 0 for none."""
        self._by_rank = by_rank
        self._ranks: dict[int, RankCurves] = {}
        self._scale = 1.0
        self._attempt = 0

    def begin(self, event: RunStarted) -> None:
        """An attempt begins: what an earlier one did after the checkpoint is taken anew."""
        self.steps_per_epoch = event.steps_per_epoch if 0 < event.steps_per_epoch < MAX_STEP else 0
        if event.attempt <= self._attempt:
            return
        self._scale = 1.0 if self._by_rank else float(min(max(1, event.world_size), MAX_RANKS))
        step = min(max(0, event.resumed_from), MAX_STEP)
        self._attempt = event.attempt
        self.timeline.begin(event.time, step)
        for rank in [rank for rank in self._ranks if rank >= event.world_size]:
            del self._ranks[rank]
        for curves in self._ranks.values():
            curves.truncate(step + 1)
            curves.scale = self._scale
        self.evaluated = min(self.evaluated, step)

    def add(self, event: Metrics) -> int:
        """Take in a batch of values; returns how many entries it has, 0 for damage, which changes nothing."""
        entries = sound_entries(event)
        if not entries:
            return 0
        if not event.values.keys() <= self.names.keys():
            event = self._admit(event)
        self._of(event.rank).add(event, entries)
        last_step = event.last_step
        self.timeline.add(event.time, last_step)
        if TEST_LOSS in event.values or TEST_ACCURACY in event.values:
            self.evaluated = max(self.evaluated, last_step)
        return entries

    def fold(self, events: Iterable[AnyEvent]) -> None:
        """Take in a run's events; those that are no part of a curve change nothing."""
        for event in events:
            if isinstance(event, Metrics):
                self.add(event)
            elif isinstance(event, RunStarted):
                self.begin(event)

    def load(self, digest: Digest) -> None:
        """Take in the digest of all events before: nothing has been taken in yet."""
        for event in digest.events:
            if isinstance(event, RunStarted):
                self.begin(event)
        self.timeline = digest.timeline
        for (rank, name), curve in digest.curves.items():
            if not self._knows(name) or not len(curve):
                continue
            self._of(rank).merge(name, series_of(curve, self._scale if name == RATE else 1.0))
            if name in (TEST_LOSS, TEST_ACCURACY):
                self.evaluated = max(self.evaluated, curve.last_step)

    def __getitem__(self, key: tuple[int, str]) -> Series:
        """The curve of a rank, or of `ALL` together, and a metric; an empty one where nothing was reported."""
        rank, name = key
        return self._ranks[rank][name] if rank in self._ranks else Series(1)

    def ranks(self, name: str) -> list[int]:
        """The ranks that have reported a metric."""
        return sorted(rank for rank, curves in self._ranks.items() if name in curves)

    def first(self, name: str) -> Series:
        """The curve of a metric by the first rank that has reported it; an empty one where none has."""
        return self[next(iter(self.ranks(name)), ALL), name]

    def places(self, steps: Floats, axis: Axis) -> Floats:
        """Where steps lie on an axis: seconds of the run, epochs, or the steps themselves."""
        if axis == "time":
            return self.timeline.seconds(steps)
        if axis == "epoch":
            return steps / self.steps_per_epoch if self.steps_per_epoch else np.full(len(steps), np.nan)
        return steps

    def _of(self, rank: int) -> RankCurves:
        rank = rank if self._by_rank else ALL
        if rank not in self._ranks:
            capacity = max(128, min(BUCKETS, ALL_BUCKETS // (rank + 1))) if self._by_rank else MEAN_BUCKETS
            self._ranks[rank] = RankCurves(rank, capacity)
            self._ranks[rank].scale = self._scale
        return self._ranks[rank]

    def _admit(self, event: Metrics) -> Metrics:
        """Make room for new metrics; returns the event without those that there is no room for."""
        known = {name: column for name, column in event.values.items() if self._knows(name)}
        if EXAMPLES in known and STEP_TIME in known:
            self._knows(RATE)
        if len(known) == len(event.values):
            return event
        return Metrics(
            rank=event.rank, first_step=event.first_step, values=known, counts=event.counts, lows=event.lows,
            highs=event.highs, time=event.time, mono=event.mono,
        )  # fmt: skip

    def _knows(self, name: str) -> bool:
        if name not in self.names:
            if len(self.names) >= MAX_NAMES:
                self.full = True
                return False
            self.names[name] = None
        return True


class SampledCurve:
    """Values that come one at a time, each at the step that the run had reached.

    Args:
        series: Those that came before.
    """

    def __init__(self, series: Series | None = None) -> None:
        self._series = Series(SAMPLE_BUCKETS)
        if series is not None:
            self._series.merge(series)
        self._steps: list[int] = []
        self._values: list[float] = []

    def append(self, step: int, value: float) -> None:
        """Take in a value; steps do not go back but after `truncate`."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= WAITING_SAMPLES:
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


def series_of(curve: Curve, scale: float = 1.0) -> Series:
    """A curve of a digest, its values multiplied with `scale`."""
    keys, *columns = curve.columns
    table = np.empty((7, len(keys)))
    for row, column in enumerate(columns):
        table[row] = column
    table[:COUNT] *= scale
    return Series.load(curve.width, np.array(keys, np.int64), table, curve.last_step, curve.first_step)


def _steps(events: Sequence[Metrics]) -> tuple[Integers, Floats]:
    """The step of each entry, that of a window of steps at its last one; and how many steps it stands for."""
    sizes = np.array([len(next(iter(event.values.values()))) for event in events], np.int64)
    firsts = np.array([event.first_step for event in events], np.int64)
    starts = np.cumsum(sizes) - sizes
    if any(event.counts for event in events):
        each = zip(events, sizes.tolist(), strict=True)
        counts = np.array([*chain.from_iterable(event.counts or [1] * size for event, size in each)], np.int64)
    else:
        counts = np.ones(int(sizes.sum()), np.int64)
    done = np.cumsum(counts)
    before = np.where(starts > 0, done[starts - 1], 0)
    return np.repeat(firsts - 1 - before, sizes) + done, counts.astype(np.float64)


def _joined(columns: Sequence[list[float | None]]) -> Floats:
    values = array("d")
    try:
        for column in columns:
            values.fromlist(column)  # type: ignore[arg-type]
    except TypeError:
        values = array("d", [NAN if value is None else value for value in chain.from_iterable(columns)])
    # Twice as fast as numpy takes lists.
    return np.frombuffer(values, np.float64)


def _bound(event: Metrics, side: Literal["lows", "highs"], name: str) -> list[float | None]:
    """The least or the greatest values of an event's entries; the values where it has none."""
    values, found = event.values[name], (getattr(event, side) or {}).get(name)
    return found if found is not None and len(found) == len(values) else values
