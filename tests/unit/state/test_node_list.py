"""Nodes beside each other: their worst rank, the skew between them, and how they fold."""

from __future__ import annotations

from dataclasses import replace

from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.folding import fold
from tuiapp.trainers.state.rank_state import NodeState
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.rank_list import RankRow, SortKey, node_rows, rank_rows
from tuiapp.widgets.node_scroll import NodeGroups


def rows(state: RunState, sort: SortKey = "rank") -> list[RankRow]:
    return node_rows(state, rank_rows(state, h.START + 8.9, sort))


def test_each_has_its_ranks_and_the_worst_of_them() -> None:
    found = rows(fold(nodes.running(2, 4)))
    assert [[row.rank.rank for row in one.rows] for one in found] == [[0, 1], [2, 3]]
    assert [one.rank.rank for one in found] == [0, 3]
    assert found[1].behind == 4


def test_one_slow_rank_of_eight_is_its_nodes_worst() -> None:
    # It takes 62 ms, all others 50 ms.
    worst = rows(fold(nodes.running(2, 16)))
    assert [(row.rank.rank, round(100 * (row.skew or 0.0))) for row in worst] == [(0, 0), (15, 24)]


def test_the_slowest_rank_is_worse_than_one_that_reports_late() -> None:
    state = fold(h.running(4))
    found = rank_rows(state, h.START + 8.9)
    slow, late = replace(found[1], skew=0.2), replace(found[2], behind=2)
    state.nodes[0] = NodeState(0, "gpubox", "joined")
    assert node_rows(state, [found[0], slow, late, found[3]])[0].rank is slow.rank


def test_a_node_that_is_not_connected_says_so() -> None:
    conditions = [one.condition.text for one in rows(fold(nodes.troubled()))]
    assert conditions == ["training", "training", "silent", "lost"]


def test_sorted_ranks_bring_the_node_of_the_worst_to_the_top() -> None:
    assert rows(fold(nodes.running(3, 6)), "behind")[0].node == 1


def test_folding() -> None:
    groups = NodeGroups()
    groups.toggle(0)
    groups.toggle(1)
    groups.toggle(0)
    assert groups.unfolded == {1}
    groups.move(1, [2, 0, 1])
    groups.move(9, [2, 0, 1])
    assert groups.cursor == 1
    groups.move(-9, [2, 0, 1])
    assert groups.cursor == 2
