"""The curves of a run by rank and metric, and the time of each step: shared by a run's screen and comparisons."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate, chain
from typing import Literal, TypeAlias

import numpy as np
from msgspec.structs import replace

from trainers.contract.events import AnyEvent, Metrics, RunEnded, RunStarted
from trainers.contract.metrics import (
    EXAMPLES,
    MAX_RANKS,
    MAX_STEP,
    RATE,
    STEP_TIME,
    TEST_ACCURACY,
    TEST_LOSS,
)
from trainers.state.curve import Timeline
from trainers.state.digest import Digest
from trainers.state.gaps import Gaps
from trainers.state.series import Floats, Integers, Series

Axis: TypeAlias = Literal["step", "time", "epoch"]

AXES: tuple[Axis, ...] = ("step", "time", "epoch")

ALL = -1  # all ranks together, in place of a rank's number
BUCKETS = 4096  # per curve of one of the first ranks
FIRST_BUCKETS = 16_384  # divided by a rank's place, counted from 1, those of its curve: the first ones are read closest
LEAST_BUCKETS = 128  # per curve of a later rank
MEAN_BUCKETS = 2048  # per curve of all ranks together: more than any terminal has dots across
SAMPLE_BUCKETS = 1024  # per curve of samples of one of the first GPUs
VALUES_PER_BUCKET = 16  # queued per rank before they are added: in bulk they cost little
WAITING_SAMPLES = 128

NAN = float("nan")

MAX_NAMES = 1000  # metrics of a run that have curves


class _Queue:
    """Events of the same names, joined: no object per event is left, which garbage collections would visit."""

    def __init__(self) -> None:
        self._steps, self._counts = array("q"), array("q")  # of each entry: its last step, and how many it joins
        self._columns: dict[tuple[str, str], array[float]] = {}  # by name and side: "", "lows" or "highs"
        self._given: dict[str, int] = {}  # how many of its entries each curve has

    def __contains__(self, name: str) -> bool:
        return (name, "") in self._columns if name != RATE else EXAMPLES in self and STEP_TIME in self

    @property
    def names(self) -> list[str]:
        return [name for name, side in self._columns if not side]

    def add(self, event: Metrics, bounded: Iterable[str]) -> None:
        counts = event.counts or [1] * len(event)
        self._steps.fromlist(list(accumulate(counts, initial=event.first_step - 1))[1:])
        self._counts.fromlist(counts)
        for name, column in event.values.items():
            self._append((name, ""), column)
        for side, bounds in (("lows", event.lows), ("highs", event.highs)):
            for name in bounded:
                self._append((name, side), (bounds or {})[name])

    def _append(self, key: tuple[str, str], column: list[float | None]) -> None:
        joined = self._columns.setdefault(key, array("d"))
        try:
            joined.fromlist(column)  # type: ignore[arg-type]
        except TypeError:
            joined.fromlist([NAN if value is None else value for value in column])

    def take(self, name: str, scale: float) -> tuple[Integers, Floats, Floats, Floats] | None:
        """Returns steps, values, lows and highs that a curve does not have yet; `scale`: factor of a rate."""
        start = self._given.get(name, 0)
        if start == len(self._counts) or name not in self:
            return None
        self._given[name] = len(self._counts)
        steps = np.frombuffer(self._steps[start:], np.int64)
        if name == RATE:
            with np.errstate(divide="ignore", invalid="ignore"):
                seconds = self._of(STEP_TIME, "", start) * np.frombuffer(self._counts[start:], np.int64)
                rates = self._of(EXAMPLES, "", start) / seconds * scale
            return steps, rates, rates, rates
        values = self._of(name, "", start)
        # An entry of a single step is its own minimum and maximum.
        lows, highs = (
            self._of(name, side, start) if (name, side) in self._columns else values for side in ("lows", "highs")
        )
        return steps, values, lows, highs

    def _of(self, name: str, side: str, start: int) -> Floats:
        # Of a copy: an array that numpy looks into cannot grow.
        return np.frombuffer(self._columns[name, side][start:], np.float64)


class RankCurves:
    """What one rank reported, in bounded memory.

    Events are queued and added to a curve when it is read, or to all curves when the queue is long: most curves are
    rarely read.
    """

    def __init__(self, rank: int, capacity: int) -> None:
        self._capacity = capacity
        self._series: dict[str, Series] = {}
        self._queues: dict[tuple[tuple[str, ...], tuple[str, ...]], _Queue] = {}  # by names, and those with bounds
        self._values = 0  # queued, of all metrics
        # Fewer with many ranks: they report in step, and adding to all curves at once would delay a key.
        self._most = VALUES_PER_BUCKET * capacity * (1 - rank % 8 / 16)
        self.scale = 1.0  # factor of derived rates

    def add(self, event: Metrics) -> None:
        bounded = tuple(name for name in event.lows or () if _has_bounds(event, name))
        self._queues.setdefault((tuple(event.values), bounded), _Queue()).add(event, bounded)
        self._values += len(event) * len(event.values)
        if self._values >= self._most:
            self._settle()

    def __getitem__(self, name: str) -> Series:
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
        for name in dict.fromkeys(chain.from_iterable(queue.names for queue in self._queues.values())):
            self._give(name)
        self._give(RATE)
        self._queues, self._values = {}, 0

    def _give(self, name: str) -> None:
        found = [taken for queue in self._queues.values() if (taken := queue.take(name, self.scale)) is not None]
        if not found:
            return
        columns = found[0] if len(found) == 1 else tuple(np.concatenate(each) for each in zip(*found, strict=True))
        steps, values, lows, highs = columns
        bounds: tuple[Floats, ...] = () if lows is values and highs is values else (lows, highs)
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
        self.timeline.begin(event.time, None)
        for rank in [rank for rank in self._ranks if rank >= event.world_size]:
            del self._ranks[rank]
        for curves in self._ranks.values():
            curves.rescale(self._scale)
        if event.resumed_from is not None:
            self._go_back(event, min(max(0, event.resumed_from), MAX_STEP))

    def end(self, event: RunEnded) -> None:
        if self._begun is None:
            self.timeline.note(event.time)

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
            elif isinstance(event, RunEnded):
                self.end(event)

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
            capacity = _share(BUCKETS, rank) if self._by_rank else MEAN_BUCKETS
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
    """A figure of one GPU by step.

    Args:
        place: How many GPUs have a curve already.
    """

    def __init__(self, place: int = 0, series: Series | None = None) -> None:
        self._series = Series(_share(SAMPLE_BUCKETS, place))
        if series is not None:
            self._series.merge(series)
        self._steps, self._values = array("q"), array("d")

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
            self._series.add(np.frombuffer(self._steps, np.int64), np.frombuffer(self._values))
            self._steps, self._values = array("q"), array("d")


def _share(most: int, place: int) -> int:
    """Returns the buckets of a curve, of one of many ranks or GPUs."""
    return max(LEAST_BUCKETS, min(most, FIRST_BUCKETS // (place + 1)))


def _has_bounds(event: Metrics, name: str) -> bool:
    sizes = {len((each or {}).get(name) or ()) for each in (event.values, event.lows, event.highs)}
    return len(sizes) == 1
