"""The curves of a run by rank and metric, and the time of each step: shared by a run's screen and comparisons."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
from msgspec.structs import replace

from trainers.contract.curve import Timeline
from trainers.contract.digest import Digest
from trainers.contract.events import AnyEvent, Metrics, RunStarted
from trainers.contract.gaps import Gaps
from trainers.contract.metrics import (
    EXAMPLES,
    MAX_RANKS,
    MAX_STEP,
    RATE,
    STEP_TIME,
    TEST_ACCURACY,
    TEST_LOSS,
)
from tuiapp.state.series import Floats, Integers, Series

Axis: TypeAlias = Literal["step", "time", "epoch"]

AXES: tuple[Axis, ...] = ("step", "time", "epoch")

ALL = -1  # all ranks together, in place of a rank's number
BUCKETS = 4096  # per curve of one of the first ranks
ALL_BUCKETS = 65_536  # for the same curve of all ranks: the higher a rank's number, the fewer it gets
MEAN_BUCKETS = 2048  # per curve of all ranks together: more than any terminal has dots across
SAMPLE_BUCKETS = 1024  # per curve of samples
VALUES_PER_BUCKET = 8  # queued per rank before they are added: in bulk they cost little
WAITING_SAMPLES = 512

NAN = float("nan")

MAX_NAMES = 1000  # metrics of a run that have curves


class RankCurves:
    """What one rank reported, in bounded memory.

    Events are queued and added to a curve when it is read, or to all curves when the queue is long: most curves are
    rarely read.
    """

    def __init__(self, rank: int, capacity: int) -> None:
        self._capacity = capacity
        self._series: dict[str, Series] = {}
        self._waiting: list[Metrics] = []
        self._values = 0  # queued, of all metrics
        self._given: dict[str, int] = {}  # how many of the queued events each curve has
        # Fewer with many ranks: they report in step, and adding to all curves at once would delay a key.
        self._most = VALUES_PER_BUCKET * capacity * (1 - rank % 8 / 16)
        self._laid_out: tuple[int, int, Integers, Floats] | None = None  # cached: from, to, steps, counts
        self.scale = 1.0  # factor of derived rates

    def add(self, event: Metrics) -> None:
        self._waiting.append(event)
        self._values += len(event) * len(event.values)
        if self._values >= self._most:
            self._settle()

    def __getitem__(self, name: str) -> Series:
        if self._given.get(name, 0) < len(self._waiting):
            self._give(name)
        return self._series.get(name) or Series(1)

    def __contains__(self, name: str) -> bool:
        # Without adding what is queued, where that changes nothing.
        known = self._series.get(name)
        return (known is not None and len(known) > 0) or len(self[name]) > 0

    def rescale(self, scale: float) -> None:
        self._settle()
        self.scale = scale

    def truncate(self, step: int) -> None:
        self._settle()
        for series in self._series.values():
            series.truncate(step)

    def merge(self, name: str, series: Series) -> None:
        self._settle()
        self._of(name).merge(series)

    def _settle(self) -> None:
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
                # An entry of a single step is its own minimum and maximum.
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
    """A run's curves, in bounded memory however long the run; no event makes it raise.

    Args:
        by_rank: Whether each rank has its own curves. Otherwise a bucket joins the values of all ranks at its steps:
            its mean is the mean over the ranks, in whatever order they report; the rate is that of all ranks.
    """

    def __init__(self, *, by_rank: bool = True) -> None:
        self.names: dict[str, None] = {}  # metrics in the order of their first report
        self.full = False  # metrics beyond `MAX_NAMES` were left out
        self.timeline = Timeline()
        self.gaps = Gaps()  # steps missing from the journal
        self.steps_per_epoch = 0  # 0 when not known
        self.evaluated = 0  # last step of an evaluation; 0 for none
        self._by_rank = by_rank
        self._ranks: dict[int, RankCurves] = {}
        self._scale = 1.0
        self._attempt = 0
        self._begun: RunStarted | None = None  # the attempt, while it is not known from which step it resumes

    @property
    def resuming(self) -> bool:
        """Whether it is not known yet from which step the attempt resumes: a script's first metrics show it."""
        return self._begun is not None

    def begin(self, event: RunStarted) -> None:
        self.steps_per_epoch = event.steps_per_epoch if 0 < event.steps_per_epoch < MAX_STEP else 0
        if event.attempt <= self._attempt:
            return
        self._scale = 1.0 if self._by_rank else float(min(max(1, event.world_size), MAX_RANKS))
        self._attempt, self._begun = event.attempt, event
        for rank in [rank for rank in self._ranks if rank >= event.world_size]:
            del self._ranks[rank]
        for curves in self._ranks.values():
            curves.rescale(self._scale)
        if event.resumed_from is not None:
            self._go_back(event, min(max(0, event.resumed_from), MAX_STEP))

    def _go_back(self, begun: RunStarted, step: int) -> None:
        """Drops what earlier attempts did after the step that this one resumes from."""
        self._begun = None
        self.timeline.begin(begun.time, step)
        for curves in self._ranks.values():
            curves.truncate(step + 1)
        self.evaluated = min(self.evaluated, step)
        self.gaps.begin(step, begun.world_size, seen=begun.resumed_from is None)

    def _look_back(self, event: Metrics) -> None:
        if self._begun is not None and event.is_training:
            self._go_back(self._begun, max(0, event.first_step - 1))

    def add(self, event: Metrics) -> None:
        self._look_back(event)
        self.gaps.add(event)
        if admitted := self._admit(event):
            self._of(event.rank).add(admitted)
        last_step = event.last_step
        if self._begun is None:
            self.timeline.add(event.time, last_step)
        if TEST_LOSS in event.values or TEST_ACCURACY in event.values:
            self.evaluated = max(self.evaluated, last_step)

    def fold(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Metrics):
                self.add(event)
            elif isinstance(event, RunStarted):
                self.begin(event)

    def load(self, digest: Digest) -> None:
        for event in digest.events:
            if isinstance(event, RunStarted):
                self.begin(event)
            elif isinstance(event, Metrics):
                self._look_back(event)
        self.timeline, self.gaps = digest.timeline, digest.gaps
        for (rank, name), curve in digest.curves.items():
            if not self._knows(name) or not len(curve):
                continue
            self._of(rank).merge(name, Series.of(curve, self._scale if name == RATE else 1.0))
            if name in (TEST_LOSS, TEST_ACCURACY):
                self.evaluated = max(self.evaluated, curve.last_step)

    def __getitem__(self, key: tuple[int, str]) -> Series:
        rank, name = key
        return self._ranks[rank][name] if rank in self._ranks else Series(1)

    def ranks(self, name: str) -> list[int]:
        return sorted(rank for rank, curves in self._ranks.items() if name in curves)

    def first(self, name: str) -> Series:
        return self[next(iter(self.ranks(name)), ALL), name]

    def places(self, steps: Floats, axis: Axis) -> Floats:
        """Maps steps to an axis: seconds of the run, epochs, or the steps themselves."""
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

    def _admit(self, event: Metrics) -> Metrics | None:
        if event.values.keys() <= self.names.keys():
            return event
        known = {name: column for name, column in event.values.items() if self._knows(name)}
        if EXAMPLES in known and STEP_TIME in known:
            self._knows(RATE)
        if len(known) == len(event.values):
            return event
        return replace(event, values=known) if known else None

    def _knows(self, name: str) -> bool:
        if name not in self.names:
            if len(self.names) >= MAX_NAMES:
                self.full = True
                return False
            self.names[name] = None
        return True


class SampledCurve:
    def __init__(self, series: Series | None = None) -> None:
        self._series = Series(SAMPLE_BUCKETS)
        if series is not None:
            self._series.merge(series)
        self._steps: list[int] = []
        self._values: list[float] = []

    def append(self, step: int, value: float) -> None:
        """Adds a value; steps never decrease except after `truncate`."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= WAITING_SAMPLES:
            self._settle()

    @property
    def series(self) -> Series:
        self._settle()
        return self._series

    def truncate(self, step: int) -> None:
        self._settle()
        self._series.truncate(step)

    def _settle(self) -> None:
        if self._steps:
            self._series.add(np.array(self._steps, np.int64), np.array(self._values))
            self._steps, self._values = [], []


def _steps(events: Sequence[Metrics]) -> tuple[Integers, Floats]:
    """Returns the last step of each entry, and the number of steps in it."""
    sizes = np.array([len(event) for event in events], np.int64)
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
    values, found = event.values[name], (getattr(event, side) or {}).get(name)
    return found if found is not None and len(found) == len(values) else values
