"""The fold over runs that are stopped, saved and resumed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.folding import fold
from tests.kit.reported import evaluation_event
from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.contract.metrics import LOSS, TEST_ACCURACY
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState


def evaluated(state: RunState) -> list[float]:
    """The steps after which the model was evaluated."""
    steps: list[float] = state.curves[0, TEST_ACCURACY].middles().tolist()
    return steps


def test_a_new_attempt_takes_steps_anew() -> None:
    again = h.started(attempt=2, resumed_from=50)
    state = fold([*interrupted.failed(), again])
    assert (state.status, state.failures, state.step) == ("running", [], 50)
    for event in (h.rank_started(0), h.steps(0, 51, 60, 20.0, losses=[9.0] * 10)):
        apply(state, event)
    losses = state.curves[0, LOSS]
    assert (state.step, losses.first_step, losses.last_step) == (60, 1, 60)
    points = losses.reduce(60, 1, 60)
    assert points.mean[48:52].tolist() == [h.loss_at(49, 0), h.loss_at(50, 0), 9.0, 9.0]
    # The other rank has not begun anew yet: what it did after the checkpoint is gone all the same.
    assert state.curves[1, LOSS].last_step == 50
    assert (state.ranks[1].step, state.ranks[1].loss) == (50, None)


def test_a_new_attempt_evaluates_and_saves_anew() -> None:
    state = fold([*h.running(last_step=100), h.checkpoint(29, 3), h.checkpoint(58, 4), h.checkpoint(87, 5, best=True)])
    assert evaluated(state) == [29, 58, 87]
    assert state.curves.evaluated == 87
    # The one after step 87 was damaged.
    apply(state, h.started(attempt=2, resumed_from=58, seconds=60))
    assert evaluated(state) == [29, 58]
    assert state.curves.evaluated == 58
    assert state.test_accuracy == h.evaluation(2, 0).values[TEST_ACCURACY][0]
    assert [one.step for one in state.checkpoints] == [29, 58]
    again = evaluation_event(87, 0.5, 0.125, **h.at(70))
    for event in (again, h.checkpoint(87, 71)):
        apply(state, event)
    assert evaluated(state) == [29, 58, 87]
    assert state.test_accuracy == 0.125
    assert [one.step for one in state.checkpoints] == [29, 58, 87]
    # Step 58 was made after 4.9 s: what came of that attempt afterwards does not count, nor the time between the two.
    assert state.elapsed(h.START + 75) == pytest.approx(4.9 + 15)


@pytest.mark.parametrize(("step", "counts"), [(72, 5.9), (58, 4.9), (0, 0.0)])
def test_of_an_earlier_attempt_counts_what_led_to_the_step_it_is_resumed_from(step: int, counts: float) -> None:
    """The last one, which made no further step, counts to its end."""
    first, second = interrupted.stopped(), interrupted.resumed(step=step, seconds=60.0)
    state = fold([*first, *second])
    assert state.elapsed(h.START + 64) == pytest.approx(counts + 4)
    again = h.started(attempt=3, resumed_from=step + 10, seconds=200)
    # Its last report came after 3 s.
    assert fold([*first, *second, again]).elapsed(h.START + 201) == pytest.approx(counts + 3 + 1)


def test_what_ailed_an_attempt_does_not_ail_the_next() -> None:
    events = [
        *interrupted.with_nan(),
        h.checkpoint(58, 4),
        *interrupted.failed()[-3:],
        h.started(attempt=2, resumed_from=58),
    ]
    state = fold(events)
    assert (headline(state), state.first_failure) == (None, None)
    note = Alert(kind="checkpoint", text="step-00000087 is damaged; resuming from step-00000058", **h.at(60))
    apply(state, note)
    found = headline(state)
    assert found is not None
    assert (found.text, found.severity) == (note.text, "warning")
    assert "resumed from step 58, attempt 2, on gpubox" in state.log[-2].text


def test_an_attempt_on_fewer_devices_forgets_the_others() -> None:
    state = fold([*interrupted.stopped(4), *interrupted.resumed(2)])
    assert sorted(state.ranks) == [0, 1]
    assert len(state.devices()) == 2
    assert state.step == 82


@pytest.mark.parametrize(
    ("events", "can_resume"),
    [
        (interrupted.stopped(), True),
        (interrupted.stopped()[:-1], False),
        ([*h.running(), h.ended("stopped", 9)], False),
        ([*h.completed()[:-1], h.checkpoint(290, 17), h.completed()[-1]], False),
        ([*h.running(), h.checkpoint(29, 9), *interrupted.failed()[-3:]], True),
        ([*interrupted.stopped(), *interrupted.resumed()], False),
    ],
)
def test_what_can_be_resumed(events: Sequence[Event], can_resume: bool) -> None:
    state = fold(events)
    assert state.can_resume == can_resume
    found = headline(state)
    assert ("u: resume from step" in (found.text if found else "")) == can_resume


def test_a_lost_run_can_be_resumed_unless_its_directory_is_gone() -> None:
    for removed in (False, True):
        state = fold(interrupted.stopped()[:-1])
        state.mark_lost(removed=removed)
        assert state.can_resume != removed
