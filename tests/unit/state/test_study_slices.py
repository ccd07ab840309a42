"""A study's slices: the objective over a swept key."""

from __future__ import annotations

import pytest

from tests.kit.runs_app import info
from tuiapp.trainers.state.objective import Objective
from tuiapp.view.study import StudyState, Trial, draw_slice


def slices(*accuracies: float) -> list[str]:
    trials = tuple(Trial(info(n), {"seed": n}, accuracy) for n, accuracy in enumerate(accuracies, 1))
    return draw_slice(
        StudyState("rates", ("seed",), Objective("test/accuracy", rises=True), trials), "seed", 40, rows=5
    )


def test_ends_of_the_axis_are_the_least_and_the_greatest() -> None:
    _, *grid, line, _ = slices(0.9, 0.5)
    assert [row.partition("┤")[0].strip(" ●★") for row in grid] == ["90 %", "│", "│", "│", "50 %"]
    assert "★" in grid[0]
    assert "●" in grid[-1]
    assert line.strip().startswith("└")


@pytest.mark.parametrize("count", [1, 3])
def test_one_value_is_said_once_and_lies_in_the_middle(count: int) -> None:
    _, *grid, _, _ = slices(*[0.9] * count)
    assert [row.partition("┤")[0].strip(" ●★") for row in grid] == ["│", "│", "90 %", "│", "│"]
    # The best is one, as in the table.
    assert (grid[2].count("★"), grid[2].count("●")) == (1, count - 1)
