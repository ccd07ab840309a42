"""What each epoch came to, where steps are joined, lost, made again, or of none; and epochs that a script reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.contract.events import AnyEvent, Facts, Metrics, RunStarted
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.epochs import Epoch
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.epochs import epoch_columns

STEPS, BATCH = 29, 48


"""Of the histories: an epoch, and a global batch."""


def epochs(events: Sequence[AnyEvent]) -> list[Epoch]:
    curves = Curves()
    curves.fold(events)
    return curves.epochs.rows


def steps(rank: int, first: int, last: int, *, loss: float | None = 1.0, seconds: float = 0.05, of: int = 2) -> Metrics:
    return step_event(rank, first, [loss] * (last - first + 1), seconds=seconds, examples=BATCH / of, **h.at(1.0))


def both(first: int, last: int, *, loss: float | None = 1.0, seconds: float = 0.05) -> list[AnyEvent]:
    return [steps(rank, first, last, loss=loss, seconds=seconds) for rank in (0, 1)]


def again(step: int | None, attempt: int = 2, world_size: int = 2) -> RunStarted:
    return h.started(world_size, attempt=attempt, resumed_from=step)


def test_an_epoch_has_the_mean_loss_of_its_ranks_its_seconds_and_its_evaluation() -> None:
    first, second = epochs(
        [
            h.started(),
            steps(0, 1, 1, loss=3.0, seconds=2.0),
            steps(1, 1, 1, loss=3.0, seconds=1.0),
            steps(0, 2, 29, loss=1.0),
            steps(1, 2, 29, loss=2.0),
            evaluation_event(29, 0.5, 0.9, seconds=7.0, **h.at(9.0)),
            *both(30, 40),
        ]
    )
    assert first.is_whole
    assert first.loss == pytest.approx((3 * 48 + 28 * 24 + 28 * 2 * 24) / (29 * 48))
    assert first.seconds == pytest.approx(2.0 + 28 * 0.05), "an evaluation is no part of them"
    assert first.examples_per_second == pytest.approx(29 * 48 / first.seconds)
    assert first.first_seconds == 2.0
    assert (first.test_loss, first.test_accuracy, first.test_seconds) == (0.5, 0.9, 7.0)
    assert (second.steps, second.is_whole, second.first_seconds, second.test_loss) == (11, False, None, None)
    assert second.examples_per_second == pytest.approx(48 / 0.05)


def test_joined_steps_count_for_their_epochs() -> None:
    """Entries of ten steps: the third has nine of the first epoch and one of the second."""
    joined = [
        Metrics(
            rank=rank,
            first_step=1,
            counts=[10, 10, 10],
            values={"loss": [1.0, 2.0, 3.0], "examples": [240.0] * 3, "step_time": [0.1, 0.2, 0.3]},
            **h.at(1.0),
        )
        for rank in (0, 1)
    ]
    first, second = epochs([h.started(), *joined])
    assert first.is_whole
    assert first.loss == pytest.approx((10 * 1 + 10 * 2 + 9 * 3) / 29)
    assert first.seconds == pytest.approx(10 * 0.1 + 10 * 0.2 + 9 * 0.3)
    assert first.first_seconds is None, "it is not known by itself"
    assert second.steps == 1
    assert (second.loss, second.seconds) == pytest.approx((3.0, 0.3))


BEGUN: list[AnyEvent] = [h.started(), *both(1, 29), *both(30, 40)]
RESUMED: dict[str, tuple[list[AnyEvent], list[tuple[int, int, float]]]] = {
    "after a whole epoch": ([*BEGUN, again(29), *both(30, 58, loss=4.0)], [(1, 29, 1.0), (2, 29, 4.0)]),
    "where it was stopped": ([*BEGUN, again(40), *both(41, 58, loss=4.0)], [(1, 29, 1.0), (2, 29, (11 + 18 * 4) / 29)]),
    "on more devices": (
        [*BEGUN, again(40, world_size=4), *(steps(rank, 41, 58, loss=4.0, of=4) for rank in range(4))],
        [(1, 29, 1.0), (2, 29, (11 + 18 * 4) / 29)],
    ),
    "before what was made": ([*BEGUN, again(35), *both(36, 58, loss=4.0)], [(1, 29, 1.0), (2, 23, 4.0)]),
    "in an earlier epoch": ([*BEGUN, again(20), *both(21, 29, loss=4.0)], [(1, 9, 4.0)]),
    "twice": ([*BEGUN, again(40), *both(41, 50), again(40, 3), *both(41, 58)], [(1, 29, 1.0), (2, 18, 1.0)]),
    "by one rank further": ([*BEGUN, steps(1, 41, 42), again(40), *both(41, 58)], [(1, 29, 1.0), (2, 18, 1.0)]),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_has_what_counts(name: str) -> None:
    events, wanted = RESUMED[name]
    found = epochs(events)
    assert [(row.number, row.steps) for row in found] == [each[:2] for each in wanted]
    assert [row.loss for row in found] == pytest.approx([each[2] for each in wanted])
    for row in found:
        assert row.seconds == pytest.approx(0.05 * row.steps)
        assert row.examples == row.steps * BATCH
        assert row.is_whole == (row.steps == STEPS)


def test_a_step_of_a_compiling_attempt_is_named_in_its_epoch() -> None:
    found = epochs([*BEGUN, again(40), *both(41, 41, seconds=3.0), *both(42, 58)])
    assert [row.first_seconds for row in found] == [0.05, 3.0]
    assert found[1].seconds == pytest.approx(28 * 0.05 + 3.0)


def test_a_loss_that_is_not_finite_leaves_the_mean_unknown() -> None:
    (row,) = epochs([h.started(), *both(1, 10), *both(11, 11, loss=None), *both(12, 29)])
    assert (row.loss, row.is_whole) == (None, True)
    assert row.seconds == pytest.approx(29 * 0.05)
    assert [column.cell(row) for column in epoch_columns(())][:3] == ["1", "29", "NaN"]


def test_evaluations_are_headed_as_their_metrics_are_called() -> None:
    reported: tuple[tuple[str, ...], ...] = ((), ("eval/loss", "eval/accuracy"), ("val_acc",))
    titles = [[column.title for column in epoch_columns(names)][6:8] for names in reported]
    assert titles == [["test loss", "accuracy"], ["eval/loss", "eval/accuracy"], ["test loss", "val_acc"]]


def test_steps_that_are_not_on_record_make_no_whole_epoch() -> None:
    (row,) = epochs([h.started(), *both(1, 10), *both(15, 29)])
    assert (row.steps, row.is_whole) == (25, False)
    assert [column.cell(row) for column in epoch_columns(())][:2] == ["1", "25/29"]
    (row,) = epochs([h.started(), steps(0, 1, 29), steps(1, 1, 20)])
    assert not row.is_whole, "the other rank is not as far"


def test_a_script_has_none() -> None:
    begun = h.started()
    unknown = RunStarted(run_id="1", host="a", pid=1, config={"script": "train.py"}, world_size=1, **h.at(0.0))
    assert epochs([unknown, *both(1, 40)]) == []
    assert len(epochs([begun, *both(1, 40)])) == 2


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
