"""Ranks beside each other: skew, lag, silence."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.rank_list import SortKey, rank_rows


def run() -> RunState:
    """Four ranks: 1 is slow, 2 lags, 3 fell silent."""
    events = [*h.beginning(4)]
    for second in range(1, 12):
        for rank in range(4):
            if rank == 3 and second > 3:
                continue
            last = 20 * second - (40 if rank == 2 else 0)
            if last > 0:
                pace = 0.08 if rank == 1 else 0.05
                events.append(h.steps(rank, last - 19, last, 2.0 + second, pace=pace))
    return fold(events)


def test_each_is_compared_with_the_others() -> None:
    rows = rank_rows(run(), h.START + 13.5)
    assert [row.rank.rank for row in rows] == [0, 1, 2, 3]
    assert [row.behind for row in rows] == [0, 0, 40, 160]
    assert [round(row.skew or 0, 2) for row in rows] == [0.0, 0.6, 0.0, 0.0]
    assert [row.silent_s for row in rows] == pytest.approx([0.5, 0.5, 0.5, 8.5])
    assert [str(row.condition) for row in rows] == [
        "● training", "▲ slow +60 %", "▲ slow", "▲ silent 8s",
    ]  # fmt: skip


@pytest.mark.parametrize(("sort", "first"), [("rank", 0), ("behind", 3), ("skew", 1), ("last report", 3)])
def test_the_worst_comes_first(sort: SortKey, first: int) -> None:
    assert rank_rows(run(), h.START + 13.5, sort)[0].rank.rank == first


def test_a_rank_of_long_steps_is_not_silent_between_them() -> None:
    state = fold([*h.beginning(2), *[h.steps(rank, 1, 1, 10.0, pace=6.0) for rank in range(2)]])
    assert {row.condition.text for row in rank_rows(state, h.START + 25)} == {"training"}
    assert {row.condition.text for row in rank_rows(state, h.START + 40)} == {"silent 30s"}


def test_no_ranks() -> None:
    assert rank_rows(RunState("none"), 0.0) == []
