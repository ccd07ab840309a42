from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.folding import extend
from tuiapp.trainers.state.series import COUNT, LAST, TOTAL, Reduced, Series, smooth


def filled(reduced: Reduced) -> list[int]:
    return [int(column) for column in np.flatnonzero(~np.isnan(reduced.mean))]


def means(reduced: Reduced) -> list[float]:
    return [float(reduced.mean[column]) for column in filled(reduced)]


def test_memory_is_bounded_and_every_extreme_survives() -> None:
    series = Series(capacity=64)
    for first in range(1, 100_001, 50):
        values: list[float | None] = [1.0] * 50
        if first == 70_001:
            values[7], values[8] = 99.0, -99.0
        extend(series, first, values)
    assert len(series) <= 64
    reduced = series.reduce(20, 1, 100_000)
    assert len(filled(reduced)) == 20
    assert np.nanmax(reduced.high) == 99.0
    assert np.nanmin(reduced.low) == -99.0
    assert series._table[COUNT].sum() == 100_000
    assert series._table[TOTAL].sum() == pytest.approx(99_998)


VALUES = st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=400)
CAPACITIES = st.sampled_from([2, 16, 257, 4096])


@given(VALUES, st.lists(st.integers(1, 60), min_size=1), CAPACITIES, st.integers(1, 220), st.randoms())
def test_whatever_comes_in_whatever_pieces_is_all_there(
    values: list[float | None], lengths: list[int], capacity: int, columns: int, order: random.Random
) -> None:
    """Extremes, sums, ends and gaps, though the pieces come out of order."""
    pieces, start = [], 0
    for length in itertools.cycle(lengths):
        pieces.append((start, values[start : start + length]))
        if (start := start + length) >= len(values):
            break
    order.shuffle(pieces)
    series = Series(capacity)
    for start, piece in pieces:
        extend(series, start + 1, piece)
    finite = [value for value in values if value is not None]
    reduced = series.reduce(columns, 1, max(2, len(values)))
    assert len(series) <= capacity
    assert series._table[COUNT].sum() == len(finite)
    assert reduced.gaps.sum() == len(values) - len(finite)
    if finite:
        assert (np.nanmin(reduced.low), np.nanmax(reduced.high)) == (min(finite), max(finite))
        assert series._table[TOTAL].sum() == pytest.approx(sum(finite), abs=1e-6)
    if finite and len(series) == len(values):
        # In a wider bucket the order in which values came stands for their order.
        assert series._table[LAST, series._table[COUNT] > 0][-1] == finite[-1]
    assert (series.first_step, series.last_step) == (1, len(values))


@given(VALUES, VALUES, st.integers(0, 1000), CAPACITIES, CAPACITIES, st.sampled_from([1.0, 4.0]))
def test_two_that_are_merged_are_as_one(
    ours: list[float | None], theirs: list[float | None], after: int, capacity: int, other_capacity: int, scale: float
) -> None:
    series, other = Series(capacity), Series(other_capacity)
    extend(series, 1, ours)
    extend(other, 1 + after, theirs)
    series.merge(other, scale)
    finite = [value for value in ours if value is not None]
    finite += [value * scale for value in theirs if value is not None]
    assert len(series) <= capacity
    assert (series.first_step, series.last_step) == (1, max(len(ours), after + len(theirs)))
    assert series._table[COUNT].sum() == len(finite)
    assert series._table[TOTAL].sum() == pytest.approx(sum(finite), abs=1e-6)
    assert series.bounds == ((min(finite), max(finite)) if finite else None)
    assert Series.restored(series.stored).stored == series.stored


def test_the_last_value_and_the_bounds_are_those_of_the_steps() -> None:
    series = Series(capacity=4)
    assert (series.last, series.bounds) == (None, None)
    extend(series, 1, [None, *(float(step) for step in range(2, 101))])
    assert (series.last, series.bounds) == (100.0, (2.0, 100.0))
    extend(series, 101, [1.0])
    assert series.bounds == (1.0, 100.0)
    reduced = series.reduce(1, 1, 100)
    assert (float(reduced.low[0]), float(reduced.high[0])) == (1.0, 100.0)


@pytest.mark.parametrize("hole", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_a_gap(hole: float | None) -> None:
    series = Series()
    extend(series, 1, [1.0, hole, 3.0])
    reduced = series.reduce(3, 1, 3)
    assert filled(reduced) == [0, 2]
    assert reduced.gaps.tolist() == [0, 1, 0]
    assert np.isnan(reduced.low[1])


def test_windows_stand_at_their_last_step_and_keep_their_extremes() -> None:
    series = Series()
    extend(series, 1, [2.0, 4.0], window=4, lows=[1.0, None], highs=[3.0, 9.0])
    assert series.last_step == 8
    reduced = series.reduce(8, 1, 8)
    assert filled(reduced) == [3, 7]
    assert (reduced.low[[3, 7]].tolist(), reduced.high[[3, 7]].tolist()) == ([1.0, 4.0], [3.0, 9.0])
    assert means(reduced) == [2.0, 4.0]


def test_a_part_of_the_curve() -> None:
    series = Series()
    extend(series, 1, [float(step) for step in range(1, 101)])
    assert means(series.reduce(20, 41, 60)) == [float(step) for step in range(41, 61)]


def test_by_places_of_their_own() -> None:
    series = Series()
    extend(series, 1, [1.0, 2.0, 3.0])
    reduced = series.reduce(11, 0.0, 10.0, np.array([0.0, 1.0, 10.0]))
    assert filled(reduced) == [0, 1, 10]


def test_truncation_forgets_later_steps() -> None:
    series = Series()
    extend(series, 1, [1.0] * 20)
    series.truncate(11)
    assert series.last_step == 10
    extend(series, 11, [5.0] * 3)
    assert means(series.reduce(13, 1, 13)) == [1.0] * 10 + [5.0] * 3
    series.truncate(1)
    assert (len(series), series.first_step, series.last_step) == (0, 0, 0)


def test_smoothing_starts_unbiased_and_keeps_gaps() -> None:
    first, gap, last = smooth(np.array([4.0, np.nan, 4.0]), 0.9)
    assert (first, last) == (pytest.approx(4.0), pytest.approx(4.0))
    assert np.isnan(gap)
    assert smooth(np.array([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]
    flat = smooth(np.array([0.0] * 5 + [1.0] * 50), 0.9)
    assert flat[-1] == pytest.approx(1.0, abs=0.01)


def test_of_equal_values_the_best_is_the_first_or_where_another_is_best() -> None:
    steps = [29, 58, 87, 116]
    accuracy, loss = Series(), Series()
    accuracy.add(steps, [0.9, 0.97, 0.97, 0.97])
    loss.add(steps, [0.1, 0.3, 0.2, 0.25])
    assert accuracy.best(rises=True) == (0.97, 58)
    assert accuracy.best(rises=True, then=loss) == (0.97, 87)
    assert loss.best(rises=False, then=accuracy) == (0.1, 29)
    assert accuracy.best(rises=True, then=Series()) == (0.97, 58)
