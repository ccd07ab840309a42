"""Ranks and nodes beside each other: skew, lag, silence, and which rank the others wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.folding import fold
from tests.kit.reported import step_event
from tuiapp.trainers.contract.events import Alert, AnyEvent, Phase
from tuiapp.trainers.state.condition import run_words
from tuiapp.trainers.state.rank_state import NodeState
from tuiapp.trainers.state.run_state import RunState
from tuiapp.verbs.narration import live_view
from tuiapp.view.devices.drawing import plain
from tuiapp.view.rank_list import RankRow, SortKey, node_rows, rank_graphs, rank_rows
from tuiapp.widgets.node_scroll import NodeGroups


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


STOPPED = Alert(kind="stopped", rank=1, text="rank 1 is stopped (SIGSTOP), the others wait", **h.at(15))
HANG = Alert(kind="hang", severity="error", rank=1, text="no progress for 30 s: rank 1 is behind", **h.at(35))
RUNNING = [*h.running(last_step=60), Phase(rank=1, phase="checkpointing", **h.at(5))]


"""The last report is of 5 s."""


NOW = h.START + 59


def conditions(state: RunState, now: float = NOW) -> list[tuple[str, str]]:
    return [(str(row.condition), row.condition.severity) for row in rank_rows(state, now)]


@pytest.mark.parametrize(
    ("alert", "culprit"), [(STOPPED, ("▲ stopped 54s", "warning")), (HANG, ("▲ hangs 54s", "error"))]
)
def test_the_culprit_stands_out_and_the_run_is_stalled(alert: Alert, culprit: tuple[str, str]) -> None:
    state = fold([*RUNNING, alert])
    assert conditions(state) == [("◌ waiting 54s", "info"), culprit]
    assert run_words(state, NOW) == ("stalled", "STALLED 54s")
    assert state.remaining() is state.examples_per_second is None
    assert {row.pace.examples_per_second for row in rank_rows(state, NOW)} == {None}
    shown = live_view(state, NOW, 120)
    assert shown[0].startswith("stalled 54s")
    assert not [line for line in shown if "examples/s" in line or "left" in line]


def test_several_culprits_or_none_that_is_known() -> None:
    several = Alert(kind="hang", severity="error", ranks=[1, 2], text="ranks 1 and 2 are behind", **h.at(35))
    nobody = Alert(kind="hang", severity="error", text="all ranks are at step 60", **h.at(35))
    running = h.running(4, last_step=60)
    waits, hangs = ("◌ waiting 54s", "info"), ("▲ hangs 54s", "error")
    assert conditions(fold([*running, several])) == [waits, hangs, hangs, waits]
    assert conditions(fold([*running, nobody])) == [hangs] * 4


def test_before_it_is_known_who_is_to_blame_nobody_stands_out() -> None:
    state = fold(h.running(last_step=60))
    assert conditions(state, h.START + 13) == [("◌ silent 8s", "info")] * 2
    alone = fold(h.running(1, last_step=60))
    assert conditions(alone, h.START + 13) == [("▲ silent 8s", "warning")]


def test_ranks_that_do_not_wait_for_a_stopped_one_train_on() -> None:
    state = fold([*h.running(last_step=60), STOPPED, h.steps(0, 61, 400, 16.0)])
    assert state.stall is None
    assert run_words(state, h.START + 17)[0] == "running"
    assert state.examples_per_second


@pytest.mark.parametrize("alert", [STOPPED, HANG])
def test_once_it_goes_on_the_stall_is_not_in_the_time_left(alert: Alert) -> None:
    before = fold(h.running(last_step=60)).remaining()
    assert before is not None
    over = Alert(kind=alert.kind, severity="info", rank=1, text="it goes on", ended=True, **h.at(60))
    # Rank 1 had made two steps more when it was stopped, and reports them now.
    late = [h.steps(1, 61, 62, 5.1), h.steps(0, 61, 62, 5.1)]
    stalled: list[AnyEvent] = [
        step_event(rank, 63, [0.3] * 3, seconds=[54.0, 0.05, 0.05], **h.at(59.2)) for rank in (0, 1)
    ]
    on = [h.steps(rank, 66, 70, 59.5) for rank in (0, 1)]
    state = fold([*h.running(last_step=60), alert, late[1], over, late[0], *stalled, *on])
    assert state.stall is None
    assert state.remaining() == pytest.approx(before - 10 * 0.05, abs=0.01)
    assert state.examples_per_second == pytest.approx(2 * 24 / 0.05)
