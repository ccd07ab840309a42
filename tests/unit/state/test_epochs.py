"""What each epoch came to, from journals in which steps are joined, lost, made again, or of no epoch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.kit import histories as h
from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.contract.events import AnyEvent, Metrics, RunStarted
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.epochs import Epoch
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
