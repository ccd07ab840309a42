"""One curve of any length in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite

LIMIT = 1e30
"""Values beyond it count as not finite: no axis can show them beside others."""


@dataclass(slots=True)
class Point:
    """What a curve does over one or more neighbouring steps."""

    step: float
    """Their middle."""
    first: float = 0.0
    last: float = 0.0
    low: float = 0.0
    high: float = 0.0
    total: float = 0.0
    """Sum of the finite values."""
    count: int = 0
    """How many finite values there are; with none, the five fields above mean nothing."""
    gaps: int = 0
    """How many values were not finite."""

    @property
    def mean(self) -> float:
        """Mean of the finite values."""
        return self.total / self.count

    def absorb(self, later: Point) -> None:
        """Join a point of later steps to this one."""
        self.gaps += later.gaps
        if not later.count:
            return
        if self.count:
            # Comparisons, not min and max: this is the innermost step of every drawing.
            if later.low < self.low:
                self.low = later.low
            if later.high > self.high:
                self.high = later.high
        else:
            self.first, self.low, self.high = later.first, later.low, later.high
        self.last = later.last
        self.total += later.total
        self.count += later.count


class Series:
    """Values by step, kept as buckets of neighbouring steps.

    A bucket keeps the first, last, least and greatest value and the mean, and how many values were not finite. When
    all buckets are in use, neighbours are joined, so that each stands for twice as many steps: memory is bounded
    and every extreme survives.

    Args:
        capacity: Most buckets.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = max(2, capacity)
        self._width = 1
        self._keys: list[int] = []
        self._points: list[Point] = []
        self.first_step = 0
        """0 while the series is empty."""
        self.last_step = 0

    def __len__(self) -> int:
        """How many buckets are in use."""
        return len(self._points)

    @property
    def resolution(self) -> int:
        """Steps that one bucket stands for."""
        return self._width

    def append(self, step: int, value: float | None) -> None:
        """Add one value; None or a value that is not finite leaves a gap."""
        self.extend(step, [value])

    def extend(
        self,
        first_step: int,
        values: Sequence[float | None],
        counts: Sequence[int] | None = None,
        lows: Sequence[float | None] | None = None,
        highs: Sequence[float | None] | None = None,
    ) -> None:
        """Add values of successive steps.

        Args:
            first_step: The step of the first value.
            values: One per step, or per window of steps; None where not finite.
            counts: Steps per window; without it one each.
            lows: The windows' least values.
            highs: The windows' greatest values.
        """
        size = len(values) if counts is None else min(len(values), len(counts))
        if not size:
            return
        # A window stands at its last step.
        steps: Sequence[int] = (
            range(first_step, first_step + size)
            if counts is None
            else [first_step + done - 1 for done in accumulate(counts[:size])]
        )
        self.first_step = min(self.first_step, first_step) if self._points else first_step
        self.last_step = max(self.last_step, steps[-1])
        start = 0
        while start < size:
            key = steps[start] // self._width
            stop = bisect_left(steps, (key + 1) * self._width, start + 1)
            point = _point(values[start:stop], lows and lows[start:stop], highs and highs[start:stop])
            self._put(key, point)
            start = stop

    def truncate(self, step: int) -> None:
        """Forget that step and all later ones: a resumed run takes them anew. Exact to the resolution."""
        keep = bisect_left(self._keys, -(-step // self._width))
        del self._keys[keep:], self._points[keep:]
        self.last_step = min(self.last_step, step - 1) if self._points else 0
        if not self._points:
            self.first_step, self._width = 0, 1

    def reduce(self, columns: int, start: int, stop: int) -> list[Point | None]:
        """The curve from step `start` to step `stop`, in that many columns of equal width.

        Returns:
            A point per column, None where no step falls into it.
        """
        columns = max(1, columns)
        scale = columns / max(1, stop - start + 1)
        reduced: list[Point | None] = [None] * columns
        width, keys = self._width, self._keys
        low = bisect_left(keys, start // width)
        high = bisect_left(keys, stop // width + 1)
        first_step, last_step, half = self.first_step, self.last_step, (width - 1) / 2
        for key, point in zip(keys[low:high], self._points[low:high], strict=True):
            middle = key * width + half
            if not first_step <= middle <= last_step:
                middle = min(last_step, max(first_step, middle))
            column = int((middle - start + 0.5) * scale)
            if not 0 <= column < columns:
                column = min(columns - 1, max(0, column))
            found = reduced[column]
            if found is None:
                reduced[column] = Point(
                    middle, point.first, point.last, point.low, point.high, point.total, point.count, point.gaps
                )
            else:
                found.absorb(point)
        return reduced

    def _put(self, key: int, point: Point) -> None:
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
            self._points.append(point)
            if len(keys) > self._capacity:
                self._halve()
            return
        place = bisect_left(keys, key)
        if keys[place] == key:
            self._points[place].absorb(point)
        else:
            keys.insert(place, key)
            self._points.insert(place, point)
            if len(keys) > self._capacity:
                self._halve()

    def _halve(self) -> None:
        while len(self._keys) > self._capacity:
            self._width *= 2
            keys: list[int] = []
            points: list[Point] = []
            for key, point in zip(self._keys, self._points, strict=True):
                if keys and keys[-1] == key >> 1:
                    points[-1].absorb(point)
                else:
                    keys.append(key >> 1)
                    points.append(point)
            self._keys, self._points = keys, points


def smooth(values: Sequence[float | None], weight: float) -> list[float | None]:
    """Exponential moving average over the points of a reduced curve.

    The weights of the first points are corrected for the missing past, as in Adam (Kingma & Ba 2015, section 3).

    Args:
        values: None where there is no value; it stays None.
        weight: Of the past, from 0 (no smoothing) to below 1.
    """
    smoothed: list[float | None] = []
    average = correction = 0.0
    for value in values:
        if value is None:
            smoothed.append(None)
            continue
        average = weight * average + (1 - weight) * value
        correction = weight * correction + (1 - weight)
        smoothed.append(average / correction)
    return smoothed


def _point(
    values: Sequence[float | None], lows: Sequence[float | None] | None, highs: Sequence[float | None] | None
) -> Point:
    finite = _finite(values)
    point = Point(0.0, gaps=len(values) - len(finite))
    if finite:
        point.first, point.last = finite[0], finite[-1]
        point.low, point.high = min(finite), max(finite)
        point.total, point.count = sum(finite), len(finite)
        if lows and (least := _finite(lows)):
            point.low = min(point.low, *least)
        if highs and (greatest := _finite(highs)):
            point.high = max(point.high, *greatest)
    return point


def _finite(values: Sequence[float | None]) -> list[float]:
    finite = [value for value in values if value is not None]
    # One test for all of them: the sum of finite numbers within the limit is within a multiple of it.
    if not finite or (isfinite(sum(finite)) and min(finite) >= -LIMIT and max(finite) <= LIMIT):
        return finite
    return [value for value in finite if -LIMIT <= value <= LIMIT]
