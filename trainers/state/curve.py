"""One metric's curve of any length in bounded memory, without numpy: the supervisor keeps one per rank and metric.

`trainers.state.series.Series` keeps the same buckets in numpy.
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

    Of an attempt that a later one resumes counts what led to the step from which that resumes: all of it, to its end,
    if it made no further one.

    Attributes:
        steps: int64 [marks], ascending.
        times: float64 [marks]: when each was made.
        timed: float64 [marks]: how many steps up to it count for the run's mean speed; 0 where nobody says so.
        busy: float64 [marks]: the seconds that those took.
        start: When the attempt began, in seconds since the epoch; None before the first.
        base: The second of the run at which it began.
        end: The last second of the run that is known.
    """

    def __init__(self) -> None:
        self.steps, self.times = array("q", [0]), array("d", [0.0])
        self.timed, self.busy = array("d", [0.0]), array("d", [0.0])
        self.start: float | None = None
        self.base = self.end = 0.0

    @property
    def _columns(self) -> tuple[array[int] | array[float], ...]:
        return self.steps, self.times, self.timed, self.busy

    def begin(self, time: float, step: int | None) -> None:
        """Begins an attempt at `time`, in seconds since the epoch, after `step`; 0 for none.

        As long as that is not known, `step` is None: all that earlier attempts did counts.
        """
        self.start, self.base = time, self.end
        if step is None or step >= self.steps[-1]:
            return
        self.base = self.end = self._at(step, self.times)
        timed, busy = self._at(step, self.timed), self._at(step, self.busy)
        keep = max(1, bisect_right(self.steps, step))
        for column in self._columns:
            del column[keep:]
        self.timed[-1], self.busy[-1] = timed, busy

    def add(self, time: float, step: int, timed: int = 0, busy: float = 0.0) -> None:
        """Adds a step made at that time, the furthest so far or not; `timed` more steps took `busy` seconds."""
        self.note(time)
        if step > self.steps[-1]:
            self.steps.append(step)
            self.times.append(max(self.times[-1], self._second(time)))
            self.timed.append(self.timed[-1])
            self.busy.append(self.busy[-1])
            if len(self.steps) > MARKS:
                for column in self._columns:
                    del column[1:-1:2]
        self.timed[-1] += timed
        self.busy[-1] += busy

    def note(self, time: float) -> None:
        """Notes that the attempt went on until that time."""
        if self.start is None:
            self.start = time
        self.end = max(self.end, self._second(time))

    def learn(self, time: float, seconds: float) -> None:
        """Takes what the run took until `time`, in seconds, if this saw nothing of earlier attempts."""
        if self.start is not None and not self.base and len(self.steps) == 1:
            self.base = self.end = max(0.0, seconds - (time - self.start))

    def _second(self, time: float) -> float:
        return self.base + time - (self.start or time)

    def seconds(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np  # the supervisor, which asks for nothing here, does without

        return np.interp(steps, self.steps, self.times)

    def _at(self, step: int, column: array[float]) -> float:
        """Returns a column's value at a step before the last mark."""
        after = bisect_right(self.steps, step)
        before = max(0, after - 1)
        share = (step - self.steps[before]) / (self.steps[after] - self.steps[before]) if after else 0.0
        return column[before] + share * (column[after] - column[before])
