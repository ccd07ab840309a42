"""One metric's curve of any length in bounded memory, without numpy: the supervisor keeps one per rank and metric.

`tuiapp.state.series.Series` keeps the same buckets in numpy.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf, nan
from typing import TYPE_CHECKING

LIMIT = 1e30
"""Larger values count as not finite: no axis can show them beside others."""

Values = Sequence[float | None]


class Curve:
    """Values by step in buckets of `width` neighbouring steps; neighbours are merged when there are too many.

    Attributes:
        capacity: Most buckets; it may shrink, which takes effect with the next values.
        width: Steps per bucket, a power of two.
        first_step: 0 while the curve is empty.
        last_step: As `first_step`.
        keys: int64 [buckets]: step // width, ascending.
        first: float32 [buckets], as `low` and `high`: of the bucket's finite values; NaN, inf and -inf if it has none.
        last: float64 [buckets]: the last value, which views show as the present one; NaN if there is none.
        total: float64 [buckets]: sum of the values.
        count: uint32 [buckets]: number of values.
        gaps: uint32 [buckets]: number of non-finite values.
    """

    __slots__ = (
        "capacity", "count", "first", "first_step", "gaps", "high", "keys", "last", "last_step", "low", "total",
        "width",
    )  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.width = 1
        self.first_step = self.last_step = 0
        self.keys = array("q")
        self.first, self.last, self.low, self.high = array("f"), array("d"), array("f"), array("f")
        self.total = array("d")
        self.count, self.gaps = array("I"), array("I")

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def columns(self) -> tuple[array[int] | array[float], ...]:
        return self.keys, self.first, self.last, self.low, self.high, self.total, self.count, self.gaps

    def add(
        self, steps: Sequence[int], values: Values, lows: Values | None = None, highs: Values | None = None
    ) -> None:
        """Adds `values`; None, or one beyond `LIMIT`, leaves a gap.

        `steps` ascend, at least one; `lows` and `highs` are the extremes of the steps that each value covers.
        """
        first, last = steps[0], steps[-1]
        if self.keys:
            self.first_step, self.last_step = min(self.first_step, first), max(self.last_step, last)
        else:
            self.first_step, self.last_step = first, last
        if not (
            first // self.width == last // self.width and self._add_at_once(last // self.width, values, lows, highs)
        ):
            width = self.width
            for step, value, low, high in zip(steps, values, lows or values, highs or values, strict=True):
                self._add_one(step // width, value, low, high)
        while len(self.keys) > self.capacity:
            self._widen()

    def truncate(self, step: int) -> None:
        """Drops this step and all later ones: a resumed run repeats them. Exact to the width."""
        keep = bisect_left(self.keys, -(-step // self.width))
        for column in self.columns:
            del column[keep:]
        self.last_step = min(self.last_step, step - 1) if keep else 0
        if not keep:
            self.first_step, self.width = 0, 1

    def _add_at_once(self, key: int, values: Values, lows: Values | None, highs: Values | None) -> bool:
        """Adds values that all fall into one bucket; returns False, and does nothing, if some are not finite."""
        try:
            low, high = min(values), max(values)  # type: ignore[type-var]
            low = low if lows is None else min(low, min(lows))  # type: ignore[type-var]
            high = high if highs is None else max(high, max(highs))  # type: ignore[type-var]
            if not -LIMIT <= low <= high <= LIMIT:  # type: ignore[operator]
                return False
            self._put(key, values[0], values[-1], low, high, sum(values), len(values), 0)  # type: ignore[arg-type]
        except TypeError:  # a None among them
            return False
        return True

    def _add_one(self, key: int, value: float | None, low: float | None, high: float | None) -> None:
        if value is None or not -LIMIT <= value <= LIMIT:
            self._put(key, nan, nan, inf, -inf, 0.0, 0, 1)
            return
        low = value if low is None or not -LIMIT <= low <= value else low
        high = value if high is None or not value <= high <= LIMIT else high
        self._put(key, value, value, low, high, value, 1, 0)

    def _put(
        self, key: int, first: float, last: float, low: float, high: float, total: float, count: int, gaps: int
    ) -> None:
        keys = self.keys
        place = len(keys)
        if keys and key <= keys[-1]:
            place = place - 1 if key == keys[-1] else bisect_left(keys, key)
            if keys[place] == key:
                if count:
                    if not self.count[place]:
                        self.first[place] = first
                    self.last[place] = last
                    self.low[place], self.high[place] = min(self.low[place], low), max(self.high[place], high)
                    self.total[place] += total
                    self.count[place] += count
                self.gaps[place] += gaps
                return
        for column, value in zip(self.columns, (key, first, last, low, high, total, count, gaps), strict=True):
            column.insert(place, value)  # type: ignore[arg-type]

    def _widen(self) -> None:
        old = tuple(zip(*self.columns, strict=True))
        for column in self.columns:
            del column[:]
        self.width *= 2
        for key, *bucket in old:
            self._put(int(key) >> 1, *bucket)


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MARKS = 4096
"""Beyond it every second one is dropped, except the first and the last."""


class Timeline:
    """When each step was first made, in seconds of the run, without the time between attempts.

    Attributes:
        steps: int64 [marks], ascending.
        times: float64 [marks]: when each was made.
        start: When the attempt began, in seconds since the epoch; None before the first.
        base: The second of the run at which it began.
    """

    def __init__(self) -> None:
        self.steps, self.times = array("q", [0]), array("d", [0.0])
        self.start: float | None = None
        self.base = 0.0

    def begin(self, time: float, step: int) -> None:
        """Begins an attempt at `time`, in seconds since the epoch, after `step`; 0 for none."""
        self.base = self._time_of(step)
        keep = max(1, bisect_right(self.steps, step))
        del self.steps[keep:], self.times[keep:]
        self.start = time

    def add(self, time: float, step: int) -> None:
        """Adds a step made at that time; ignored unless it is the furthest so far."""
        if self.start is None:
            self.start = time
        if step > self.steps[-1]:
            self.steps.append(step)
            self.times.append(max(self.times[-1], self.base + time - self.start))
            if len(self.steps) > MARKS:
                del self.steps[1:-1:2], self.times[1:-1:2]

    def seconds(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np  # the supervisor, which asks for nothing here, does without

        return np.interp(steps, self.steps, self.times)

    def _time_of(self, step: int) -> float:
        after = bisect_right(self.steps, step)
        if after == len(self.steps):
            return self.times[-1]
        before = max(0, after - 1)
        share = (step - self.steps[before]) / (self.steps[after] - self.steps[before]) if after else 0.0
        return self.times[before] + share * (self.times[after] - self.times[before])
