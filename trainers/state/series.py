"""A curve of any length in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuiapp.trainers.state.pending_values import Piece
from tuiapp.trainers.state.text import format_metric

SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98)  # weights of the past to choose from
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

Stored: TypeAlias = tuple[int, int, int, int, bytes, bytes]
"""Capacity, steps per bucket, first and last step, int64 [buckets] keys, float64 [8, buckets] table."""

LAST, LOW, HIGH, TOTAL, COUNT, NANS, PLUS, MINUS = range(8)  # rows of a table of buckets
ROWS = 8


@dataclass(slots=True)
class Reduced:
    """A curve in columns of equal width; NaN where a column is empty."""

    low: Floats
    high: Floats
    mean: Floats
    gaps: Floats  # values that were not finite


class Series:
    """Values by step, kept as buckets of neighbouring steps.

    A bucket keeps the last value, of the finite ones the least, the greatest, the sum and the number, and how many were
    NaN, inf and -inf. When all
    `capacity` buckets are in use, neighbours are joined, so that each covers twice as many steps: memory is bounded,
    every extreme survives, and drawing costs the same after a hundred steps and after ten million. A smaller capacity
    takes effect with the next values.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = max(2, capacity)
        self._width = 1
        self._keys: Integers = np.empty(0, np.int64)
        self._table: Floats = np.empty((ROWS, 0))
        self.first_step = 0  # 0 while the series is empty
        self.last_step = 0

    @property
    def stored(self) -> Stored:
        return self.capacity, self._width, self.first_step, self.last_step, self._keys.tobytes(), self._table.tobytes()

    @classmethod
    def restored(cls, stored: Stored) -> Series:
        """Raises ValueError if its parts do not fit each other."""
        capacity, width, first, last, keys, table = stored
        series = cls(capacity)
        series._width, series.first_step, series.last_step = width, first, last
        series._keys = np.frombuffer(keys, np.int64)
        series._table = np.frombuffer(table, np.float64).reshape(ROWS, len(series._keys))
        return series

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def last(self) -> float | None:
        """The last value, finite or not; None without one."""
        return float(self._table[LAST, -1]) if len(self) else None

    @property
    def counts(self) -> dict[str, int]:
        """How many values are finite, NaN, inf and -inf."""
        counts = self._table[COUNT:].sum(axis=1).astype(int).tolist()
        return dict(zip(("finite", "NaN", "inf", "−inf"), counts, strict=True))

    @property
    def is_finite(self) -> bool:
        return not self._table[NANS:].any()

    @property
    def never_falls(self) -> bool:
        """Whether its values are all finite, and each is at least the one before; not of a constant."""
        low, high = self._table[LOW], self._table[HIGH]
        return self.is_finite and len(self) > 1 and bool((low[1:] >= high[:-1]).all() and high[-1] > low[0])

    def at(self, steps: Floats) -> Floats:
        """Returns its values at steps, between two reports as if it had changed evenly; NaN if it has none."""
        if not len(self):
            return np.full(len(steps), np.nan)
        values: Floats = np.interp(steps, self.middles(), self._table[LAST])
        return values

    @property
    def mean(self) -> float:
        """Returns the mean of all values; NaN without a finite one."""
        count = self._table[COUNT].sum()
        return float(self._table[TOTAL].sum() / count) if count else float("nan")

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest value; None without a finite one."""
        return (float(self._table[LOW].min()), float(self._table[HIGH].max())) if self._table[COUNT].any() else None

    def best(self, *, rises: bool, then: Series | None = None) -> tuple[float, int] | None:
        """Returns the greatest value, or the least, and its step, to the resolution; None without a finite one.

        Of several steps with that value it is the first; with `then` the first at which that, of the other direction,
        is best.
        """
        if self.bounds is None:
            return None
        row = self._table[HIGH] if rises else self._table[LOW]
        value = row.max() if rises else row.min()
        steps = self.middles()[row == value]
        if then is not None and len(steps) > 1:
            also = np.isin(then.middles(), steps)
            if also.any():
                opposite = then._table[LOW if rises else HIGH, also]
                steps = then.middles()[also][[opposite.argmin() if rises else opposite.argmax()]]
        return float(value), int(steps[0])

    def add(
        self,
        at: ArrayLike,
        new_values: ArrayLike,
        lows: Floats | None = None,
        highs: Floats | None = None,
        weights: Floats | None = None,
        lasts: Floats | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Adds values at ascending steps, with the extremes and the last of windows of steps.

        In means each counts as its weight says, by default once. `again`: a value takes the place of an earlier one of
        its step, as long as a bucket is one step.
        """
        steps, values = np.asarray(at, np.int64), np.asarray(new_values, np.float64)
        if not len(steps):
            return
        first, last = int(steps[0]), int(steps[-1])
        self.first_step = min(self.first_step, first) if len(self) else first
        self.last_step = max(self.last_step, last) if len(self) else last
        keys = steps // self._width
        while np.count_nonzero(keys[1:] != keys[:-1]) >= self.capacity:
            # More than there is room for: joining them at once is cheaper than pair by pair.
            self._widen()
            keys = steps // self._width
        keys, table = _buckets(keys, values, lows, highs, weights, lasts)
        if again and self._width == 1 and len(self) and keys[0] <= self._keys[-1]:
            stays = ~np.isin(self._keys, keys)
            self._keys, self._table = self._keys[stays], self._table[:, stays]
        if not len(self):
            self._keys, self._table = keys, table
        elif keys[0] >= self._keys[-1]:
            # Buckets need joining only where old and new meet: they are few.
            join = int(keys[0] == self._keys[-1])
            if join:
                _, both = _join(keys[[0, 0]], np.stack([self._table[:, -1], table[:, 0]], axis=1))
                table = np.concatenate([both, table[:, 1:]], axis=1)
            kept = len(self) - join
            self._keys = np.concatenate([self._keys[:kept], keys])
            self._table = np.concatenate([self._table[:, :kept], table], axis=1)
        else:
            self._insert(keys, table)
        self._fit()

    def add_pieces(self, pieces: Sequence[Piece], scale: float = 1.0, *, again: bool = False) -> None:
        """Adds what has waited, in whatever order; `scale` is the factor of a rate, `again` as for `add`."""
        by_piece = [_columns(piece, scale) for piece in pieces]
        columns = (
            by_piece[0]
            if len(by_piece) == 1
            else tuple(np.concatenate(column) for column in zip(*by_piece, strict=True))
        )
        steps, values, *bounds = columns
        low, high, lasts = (None if bound is values else bound for bound in bounds)
        weights = None
        if any(piece.weights is not None for piece in pieces):
            weights = np.concatenate([piece.weights or np.ones(len(piece.steps)) for piece in pieces])
        if (steps[1:] < steps[:-1]).any():
            order = np.argsort(steps, kind="stable")
            steps, values = steps[order], values[order]
            low, high, weights, lasts = (
                None if column is None else column[order] for column in (low, high, weights, lasts)
            )
        if again and (steps[1:] == steps[:-1]).any():
            only = np.append(steps[1:] != steps[:-1], True)
            steps, values = steps[only], values[only]
            low, high, weights, lasts = (
                None if column is None else column[only] for column in (low, high, weights, lasts)
            )
        self.add(steps, values, low, high, weights, lasts, again=again)

    def merge(self, other: Series, scale: float = 1.0, weight: float = 1.0) -> None:
        """Adds the values of another series, each multiplied with `scale`, that count `weight` times in means."""
        if not len(other):
            return
        if not len(self) and scale == weight == 1:
            # Arrays are replaced, never changed: both may have the same ones.
            self._width, self.first_step, self.last_step = other._width, other.first_step, other.last_step
            self._keys, self._table = other._keys, other._table
            self._fit()
            return
        if not len(self):
            self._width, self.first_step, self.last_step = other._width, other.first_step, other.last_step
        while self._width < other._width:
            self._widen()
        self.first_step = min(self.first_step, other.first_step)
        self.last_step = max(self.last_step, other.last_step)
        table = other._table.copy()
        table[:COUNT] *= scale
        table[TOTAL : COUNT + 1] *= weight
        self._insert(*_join(other._keys * other._width // self._width, table))
        self._fit()

    def _insert(self, keys: Integers, table: Floats) -> None:
        keys = np.concatenate([self._keys, keys])
        order = np.argsort(keys, kind="stable")
        self._keys, self._table = _join(keys[order], np.concatenate([self._table, table], axis=1)[:, order])

    def _fit(self) -> None:
        while len(self) > self.capacity:
            self._widen()

    def _widen(self) -> None:
        self._width *= 2
        if len(self):
            self._keys, self._table = _join(self._keys >> 1, self._table)

    def truncate(self, step: int) -> None:
        """Drops that step and all later ones, exact to the resolution."""
        keep = int(np.searchsorted(self._keys, -(-step // self._width)))
        self._keys, self._table = self._keys[:keep], self._table[:, :keep]
        self.last_step = min(self.last_step, step - 1) if keep else 0
        if not keep:
            self.first_step, self._width = 0, 1

    def middles(self) -> Floats:
        middles = self._keys * self._width + (self._width - 1) / 2
        return np.clip(middles, self.first_step, self.last_step)

    def means(self) -> Floats:
        return _divide(self._table[TOTAL], self._table[COUNT])

    def extremes(self) -> tuple[Floats, Floats]:
        """Returns the least and the greatest value of each bucket; inf and -inf where none is finite."""
        return self._table[LOW], self._table[HIGH]

    def reduce(self, columns: int, start: float, stop: float, places: Floats | None = None) -> Reduced:
        """Reduces the curve from `start` to `stop`, the middles of the first and the last column, to `columns`.

        `places` holds the position of each bucket, ascending; by default their middle steps.
        """
        columns = max(1, columns)
        reduced = np.full((ROWS, columns), np.nan)
        reduced[COUNT:] = 0
        where = self.middles() if places is None else places
        scale = (columns - 1) / max(stop - start, 1e-12)
        inside = slice(*np.searchsorted(where, [start - 0.5 / scale if scale else start, np.inf]))
        column = np.rint((where[inside] - start) * scale).astype(np.int64)
        fits = column < columns
        if fits.any():
            keys, table = _join(np.maximum(column[fits], 0), self._table[:, inside][:, fits])
            reduced[:, keys] = table
        low, high, count = reduced[LOW], reduced[HIGH], reduced[COUNT]
        low[count == 0] = high[count == 0] = np.nan
        return Reduced(low, high, _divide(reduced[TOTAL], count), reduced[NANS:].sum(axis=0))


def not_finite(curves: Sequence[Series]) -> str:
    """Says how many values of curves are not finite, and whether one ends so; "" if all are finite."""
    counts = [curve.counts for curve in curves if not curve.is_finite]
    if not counts:
        return ""
    total = sum(sum(curve.counts.values()) for curve in curves)
    kinds = {
        kind: count for kind in ("NaN", "inf", "−inf") if (count := sum(curve_counts[kind] for curve_counts in counts))
    }
    parts = [f"{count:,} of {total:,} {'is' if count == 1 else 'are'} {kind}" for kind, count in kinds.items()]
    if ends := [last for curve in curves if (last := curve.last) is not None and not np.isfinite(last)]:
        parts.append(f"ends at {format_metric(ends[0])}")
    return ", ".join(parts)


def smooth(values: Floats, weight: float) -> Floats:
    """Returns the exponential moving average over the points of a reduced curve, in which NaN stays NaN.

    The weights of the first points are corrected for the missing past, as in Adam (Kingma & Ba 2015, section 3).
    `weight` is that of the past, from 0 (no smoothing) to below 1.
    """
    if not weight:
        return values
    result = values.copy()
    present = np.flatnonzero(~np.isnan(result))
    smoothed, average, correction = [], 0.0, 0.0
    for value in result[present].tolist():
        average = weight * average + (1 - weight) * value
        correction = weight * correction + (1 - weight)
        smoothed.append(average / correction)
    result[present] = smoothed
    return result


def _columns(piece: Piece, scale: float) -> tuple[Any, ...]:
    """Returns steps, values, lows, highs and lasts, each [entries]; a bound that is not known is the values."""
    steps, values = np.asarray(piece.steps), np.asarray(piece.values)
    if piece.counts is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = values / (np.asarray(piece.seconds) * np.asarray(piece.counts)) * scale
    return steps, values, *(values if bound is None else np.asarray(bound) for bound in piece.bounds)


def _divide(total: Floats, count: Floats) -> Floats:
    means = np.full(len(total), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means


def _buckets(
    keys: Integers,
    values: Floats,
    lows: Floats | None,
    highs: Floats | None,
    weights: Floats | None,
    lasts: Floats | None,
) -> tuple[Integers, Floats]:
    if weights is not None or not np.isfinite(values).all():
        table = _as_buckets(values, lows, highs, lasts)
        if weights is not None:
            table[TOTAL : COUNT + 1] *= weights
        return _join(keys, table)
    starts = _starts(keys)
    stops = np.concatenate([starts[1:], [len(keys)]])
    table = np.zeros((ROWS, len(starts)))
    table[LAST] = (values if lasts is None else lasts)[stops - 1]
    table[LOW] = np.minimum.reduceat(values if lows is None else np.fmin(values, lows), starts)
    table[HIGH] = np.maximum.reduceat(values if highs is None else np.fmax(values, highs), starts)
    table[TOTAL] = np.add.reduceat(values, starts)
    table[COUNT] = stops - starts
    return keys[starts], table


def _starts(keys: Integers) -> Integers:
    return np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])


def _as_buckets(values: Floats, lows: Floats | None, highs: Floats | None, lasts: Floats | None) -> Floats:
    good = np.isfinite(values)
    table = np.empty((ROWS, len(values)))
    table[LAST] = values if lasts is None else np.where(np.isnan(lasts) & np.isinf(values), values, lasts)
    table[LOW], table[HIGH], table[TOTAL] = (np.where(good, values, empty) for empty in (np.inf, -np.inf, 0.0))
    for row, bound, nearer in ((LOW, lows, np.fmin), (HIGH, highs, np.fmax)):
        if bound is not None:
            table[row, good] = nearer(table[row, good], bound[good])
    table[COUNT] = good
    table[NANS], table[PLUS], table[MINUS] = np.isnan(values), values == np.inf, values == -np.inf
    return table


def _join(keys: Integers, table: Floats) -> tuple[Integers, Floats]:
    starts = _starts(keys)
    if len(starts) == len(keys):
        return keys, table
    joined: Floats = np.empty((ROWS, len(starts)))
    joined[LAST] = table[LAST, np.concatenate([starts[1:], [len(keys)]]) - 1]
    joined[LOW] = np.minimum.reduceat(table[LOW], starts)
    joined[HIGH] = np.maximum.reduceat(table[HIGH], starts)
    joined[TOTAL:] = np.add.reduceat(table[TOTAL:], starts, axis=1)
    return keys[starts], joined
