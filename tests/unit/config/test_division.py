"""How a batch is divided among ranks of unequal speed."""

from __future__ import annotations

import pytest

from tuiapp.trainers.config.division import apportion


@pytest.mark.parametrize(
    ("units", "speeds", "parts"),
    [
        (48, [3.0, 1.0], (36, 12)),
        (48, [1.0, 1.0, 1.0], (16, 16, 16)),
        (50, [1.0, 1.0, 1.0], (17, 17, 16)),
        (4, [1000.0, 1.0, 1.0], (2, 1, 1)),
        (48, [1.0, 1000.0, 1.0], (2, 44, 2)),
        (3, [1000.0, 1.0, 1.0], (1, 1, 1)),
        (7, [2.0, 1.0], (5, 2)),
    ],
)
def test_a_batch_is_divided_by_speed(units: int, speeds: list[float], parts: tuple[int, ...]) -> None:
    assert apportion(units, speeds) == parts
