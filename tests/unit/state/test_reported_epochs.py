"""The epochs of scripts: from a metric `epoch`, which says how many are done or which one a step is of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tuiapp.trainers.contract.events import AnyEvent, Facts, Metrics, RunStarted
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState

START_S = 20.0
"""Before the first report."""


def folded(events: Iterable[AnyEvent], total_steps: int = 0) -> RunState:
    state = RunState()
    for event in [own.started(), Facts(total_steps=total_steps, **h.at(1.0)), *events]:
        apply(state, event)
    return state


def said(step: int, values: Mapping[str, float], *, rank: int = 0, seconds: float | None = None) -> Metrics:
    """A second a step."""
    moment = START_S + step if seconds is None else seconds
    return Metrics(rank=rank, first_step=step, values={name: [each] for name, each in values.items()}, **h.at(moment))


def transformers(steps: Iterable[int], of: int, *, evaluated: bool = True) -> list[AnyEvent]:
    """As its Trainer reports: a fraction beside each loss, and one whole number beside an evaluation."""
    events: list[AnyEvent] = []
    for step in steps:
        events.append(said(step, {"loss": 100 - step, "epoch": step / of}))
        if evaluated and step % of == 0:
            events.append(said(step, {"eval/loss": step / 100, "epoch": step / of}))
    return events


def named(steps: Iterable[int], of: int, first: int = 0) -> list[AnyEvent]:
    """As Lightning and most loops report: the number of the epoch that the step is of."""
    return [said(step, {"loss": 100 - step, "epoch": (step - 1) // of + first}) for step in steps]


def numbers(state: RunState) -> list[tuple[int, int, int]]:
    return [(row.number, row.steps, row.of) for row in state.curves.last_epochs()]


def test_fractions_say_how_long_an_epoch_is() -> None:
    state = folded(transformers(range(5, 51, 5), 20), total_steps=80)
    assert numbers(state) == [(1, 20, 20), (2, 20, 20), (3, 10, 20)]
    assert (state.epoch, state.epochs) == (3, 4)
    first, second, third = state.curves.last_epochs()
    assert (first.is_whole, second.is_whole, third.is_whole) == (True, True, False)
    assert [first.loss, second.loss, third.loss] == [87.5, 67.5, 52.5]
    assert [row.test_loss for row in (first, second, third)] == [0.2, 0.4, None]
    assert first.seconds == pytest.approx(20.0), "not what the script took to start"
    assert second.seconds == pytest.approx(20.0)
    assert first.examples_per_second is None
    assert state.curves.last_epochs(1) == [third]


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_name_the_epoch_that_a_step_is_of(first: int) -> None:
    state = folded(named(range(1, 26), 10, first), total_steps=40)
    assert numbers(state) == [(1, 10, 10), (2, 10, 10), (3, 5, 10)]
    assert (state.epoch, state.epochs) == (3, 4)
    assert [row.loss for row in state.curves.last_epochs()] == [94.5, 84.5, 77.0]


def test_how_many_epochs_there_are_is_said_once_it_is_certain() -> None:
    """Every third step is reported: the first epoch, of ten, may have ended after the ninth, tenth or eleventh."""
    state = folded(named(range(3, 13, 3), 10), total_steps=50)
    assert numbers(state) == [(1, 9, 9), (2, 3, 9)]
    assert (state.epoch, state.epochs) == (2, 5)
    assert folded(named(range(6, 13, 6), 10), total_steps=50).epochs == 0, "five to eight"
    assert folded(named(range(6, 50, 6), 10), total_steps=50).epochs == 5
    assert folded(named(range(1, 10), 10), total_steps=50).epochs == 0


def test_an_axis_of_epochs_goes_on_beyond_the_last_that_is_over() -> None:
    for events in (transformers(range(5, 31, 5), 20), named(range(1, 31), 20)):
        curves = folded(events).curves
        assert curves.places(np.array([0.0, 10, 20, 30, 40]), "epoch").tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_resumed_run_counts_on_from_its_checkpoint() -> None:
    again = RunStarted(
        run_id=own.RUN_ID, host="gpubox", pid=4200, config={}, world_size=1, attempt=2, resumed_from=None, **h.at(90)
    )
    more = [said(step, {"loss": 1.0, "epoch": step / 20}, seconds=100.0 + step) for step in range(25, 46, 5)]
    state = folded([*transformers(range(5, 36, 5), 20), again, *more], total_steps=60)
    assert numbers(state) == [(1, 20, 20), (2, 20, 20), (3, 5, 20)]
    assert [row.loss for row in state.curves.last_epochs()] == [87.5, 1.0, 1.0]


def test_a_run_that_begins_from_anothers_checkpoint_has_the_epochs_since() -> None:
    assert numbers(folded(transformers(range(45, 86, 5), 20))) == [(3, 16, 16), (4, 20, 20), (5, 5, 20)]


def test_an_evaluation_belongs_to_the_last_epoch_begun_before_it() -> None:
    """What is logged without a step after an epoch stands at the step before the next one's first."""
    events: list[AnyEvent] = []
    for epoch in (1, 2, 3):
        first = 4 * epoch - 3
        events += [said(step, {"loss": 1.0, "epoch": epoch}) for step in range(first, first + 3)]
        events.append(said(first + 3, {"test/loss": epoch / 10}))
    state = folded(events)
    assert numbers(state) == [(1, 4, 4), (2, 4, 4), (3, 4, 4)]
    assert [row.test_loss for row in state.curves.last_epochs()] == [0.1, 0.2, 0.3]
    assert [state.epoch_of(step) for step in (3, 4, 5, 8, 9, 12)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.nightly
def test_many_epochs_are_found_in_a_curve_of_any_length() -> None:
    state = folded(transformers(range(1, 40_001), 4, evaluated=False))
    assert [row.number for row in state.curves.last_epochs(500)] == [*range(9501, 10_001)]
    assert sum(row.steps for row in state.curves.last_epochs(500)) == pytest.approx(2000, abs=16)


@pytest.mark.parametrize(
    ("values", "done", "interrupted"),
    [
        ([0.5, 1.0, 1.5, 2.25], 2.25, 2.25),
        ([0, 0, 1, 1, 2], 3.0, 2.5),
        ([1, 1, 2, 2, 3], 3.0, 2.5),
        # An epoch may be longer than those before it; and one report of each is at its end.
        ([1, 1, 2, 2, 3, 3, 3], 3.0, 3.0),
        ([1, 2, 3], 3.0, 3.0),
        # How long the first one is nobody knows.
        ([0, 0], 1.0, 0.0),
        # A second training counts on.
        ([0, 0, 1, 1, 0, 0, 1], 4.0, 3.5),
        ([0.5, 2.0, 0.5, 1.0], 3.0, 3.0),
        ([-1.0, 1e9, None], None, None),
    ],
)
def test_how_many_epochs_a_run_has_done(values: list[float | None], done: float | None, interrupted: float) -> None:
    """One that is only named is over if the training has completed."""
    events = [
        Metrics(rank=0, first_step=step, values={"loss": [1.0], "epoch": [value]}, **h.at(START_S + step))
        for step, value in enumerate(values, 1)
    ]
    reported = folded(events).curves.reported_epochs
    assert reported is not None
    assert (reported.over(completed=True), reported.over(completed=False)) == (done, interrupted)
