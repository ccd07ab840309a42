from __future__ import annotations

import math

import pytest

from tuiapp.state.series import Series, smooth


def test_few_values_are_kept_as_they_are() -> None:
    series = Series()
    series.extend(1, [3.0, 2.0, 1.0])
    points = series.reduce(3, 1, 3)
    assert [(p.step, p.mean, p.count) for p in points if p] == [(1, 3.0, 1), (2, 2.0, 1), (3, 1.0, 1)]


def test_memory_is_bounded_and_every_extreme_survives() -> None:
    series = Series(capacity=64)
    for first in range(1, 100_001, 50):
        values: list[float | None] = [1.0] * 50
        if first == 70_001:
            values[7], values[8] = 99.0, -99.0
        series.extend(first, values)
    assert len(series) <= 64
    points = [p for p in series.reduce(20, 1, 100_000) if p]
    assert len(points) == 20
    assert max(p.high for p in points) == 99.0
    assert min(p.low for p in points) == -99.0
    assert sum(p.count for p in points) == 100_000
    assert sum(p.total for p in points) == pytest.approx(99_998)


def test_first_and_last_are_those_of_the_steps() -> None:
    series = Series(capacity=4)
    series.extend(1, [float(step) for step in range(1, 101)])
    (point,) = series.reduce(1, 1, 100)
    assert point is not None
    assert (point.first, point.last, point.low, point.high) == (1.0, 100.0, 1.0, 100.0)


@pytest.mark.parametrize("hole", [None, math.nan, math.inf, -math.inf, 1e31])
def test_what_is_not_finite_is_a_gap(hole: float | None) -> None:
    series = Series()
    series.extend(1, [1.0, hole, 3.0])
    points = series.reduce(3, 1, 3)
    assert [(p.count, p.gaps) for p in points if p] == [(1, 0), (0, 1), (1, 0)]


def test_gaps_are_bounded_too() -> None:
    series = Series(capacity=16)
    series.extend(1, [None] * 10_000)
    assert len(series) <= 16
    assert sum(p.gaps for p in series.reduce(8, 1, 10_000) if p) == 10_000


def test_windows_stand_at_their_last_step_and_keep_their_extremes() -> None:
    series = Series()
    series.extend(1, [2.0, 4.0], counts=[4, 4], lows=[1.0, None], highs=[3.0, 9.0])
    assert series.last_step == 8
    points = [p for p in series.reduce(8, 1, 8) if p]
    assert [(p.step, p.low, p.high, p.mean) for p in points] == [(4, 1.0, 3.0, 2.0), (8, 4.0, 9.0, 4.0)]


def test_a_part_of_the_curve() -> None:
    series = Series()
    series.extend(1, [float(step) for step in range(1, 101)])
    points = series.reduce(5, 41, 60)
    assert [p.mean for p in points if p] == [42.5, 46.5, 50.5, 54.5, 58.5]


def test_steps_out_of_order_find_their_place() -> None:
    series = Series()
    series.extend(11, [2.0] * 10)
    series.extend(1, [1.0] * 10)
    assert [p.mean for p in series.reduce(2, 1, 20) if p] == [1.0, 2.0]


def test_truncation_forgets_later_steps() -> None:
    series = Series()
    series.extend(1, [1.0] * 20)
    series.truncate(11)
    assert series.last_step == 10
    series.extend(11, [5.0] * 3)
    assert [p.mean for p in series.reduce(13, 1, 13) if p] == [1.0] * 10 + [5.0] * 3
    series.truncate(1)
    assert (len(series), series.first_step, series.last_step) == (0, 0, 0)


def test_an_empty_series_reduces_to_nothing() -> None:
    assert Series().reduce(3, 1, 10) == [None, None, None]


def test_smoothing_starts_unbiased_and_keeps_gaps() -> None:
    assert smooth([4.0, None, 4.0], 0.9) == [pytest.approx(4.0), None, pytest.approx(4.0)]
    assert smooth([1.0, 2.0], 0.0) == [1.0, 2.0]
    flat = smooth([0.0] * 5 + [1.0] * 50, 0.9)
    assert flat[-1] == pytest.approx(1.0, abs=0.01)
