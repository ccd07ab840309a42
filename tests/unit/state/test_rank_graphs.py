"""The ranks' step times beneath their table, where the panel is large."""

from __future__ import annotations

from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.view.devices.drawing import plain
from tuiapp.view.rank_list import rank_graphs


def test_each_rank_has_a_graph_on_one_scale() -> None:
    slow = [h.steps(1, 131, 290, 20.0, pace=0.1), h.steps(0, 131, 290, 20.0, pace=0.05)]
    lines = [plain(one) for one in rank_graphs(fold([*h.running(2), *slow]), 115, 12)]
    assert len(lines) == 12
    assert all(len(one) <= 115 for one in lines)
    assert "rank 0" in lines[0]
    assert "rank 1" in lines[0]
    # The slower one's curve is higher at its end, the other's is not.
    assert lines[2].rstrip()[-1] > "⠀"
    assert not lines[2][:56].rstrip().endswith("⣿")


def test_one_long_first_step_does_not_flatten_the_others() -> None:
    first = h.steps(0, 1, 1, 2.0, pace=60.0)
    lines = [plain(one) for one in rank_graphs(fold([*h.beginning(1), first, h.steps(0, 2, 400, 9.0)]), 115, 6)]
    assert "55.0 ms" in lines[1]


def test_as_many_as_there_is_room_for() -> None:
    state = fold(h.running(16))
    assert len(rank_graphs(state, 76, 9)) <= 9
    assert rank_graphs(state, 76, 3) == []
    assert rank_graphs(fold(h.beginning(2)), 115, 12) == []
