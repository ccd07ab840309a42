"""A run that stands still: the rank that the others wait for stands out, and neither speed nor time left is shown."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.reported import step_event
from tuiapp.trainers.contract.events import Alert, AnyEvent, Phase
from tuiapp.trainers.state.condition import run_words
from tuiapp.trainers.state.run_state import RunState
from tuiapp.verbs.narration import live_view
from tuiapp.view.rank_list import rank_rows

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
