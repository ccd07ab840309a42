"""The supervisor's curves hold the same buckets as those of the dashboard."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.state.folding import extend
from trainers.state.curve import Curve
from trainers.state.series import Series


def assert_same(curve: Curve, series: Series) -> None:
    assert (curve.width, curve.first_step, curve.last_step) == (
        series._width,
        series.first_step,
        series.last_step,
    )
    keys, *table = (np.array(column) for column in curve.columns)
    np.testing.assert_array_equal(keys, series._keys)
    np.testing.assert_allclose(np.array(table, np.float64), series._table, rtol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_a_series(seed: int) -> None:
    dice = random.Random(seed)
    capacity = dice.choice([2, 7, 64, 500])
    curve, series, step = Curve(capacity), Series(capacity), 1
    for _ in range(300):
        size, window = dice.randint(1, 12), dice.choice([1, 1, 4])
        odd = dice.choice([None, 1e31, -1e31]) if dice.random() < 0.2 else 0.5
        values = [dice.choice([odd, dice.gauss(0, 1), dice.gauss(0, 1)]) for _ in range(size)]
        lows = [None if one is None or dice.random() < 0.1 else one - 0.1 for one in values] if window > 1 else None
        highs = [None if one is None else one + dice.choice([0.1, 1e30]) for one in values] if window > 1 else None
        first = dice.randint(1, step) if dice.random() < 0.05 else step
        curve.add([first - 1 + window * (place + 1) for place in range(size)], values, lows, highs)
        extend(series, first, values, window, lows, highs)
        step = max(step, first + size * window)
        if dice.random() < 0.03:
            step = dice.randint(1, step)
            curve.truncate(step)
            series.truncate(step)
    assert_same(curve, series)
