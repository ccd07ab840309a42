"""A run's figures, added up from its events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import asdict

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.config.plan import Plan, make_plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Figures, LogLine, Metrics, RunEnded, RunStarted
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.outcome import steps_on_all, summary_of
from tuiapp.trainers.state.run_state import RunState

PLAN = make_plan(RunConfig(devices=2, global_batch_size=100, epochs=3))
"""14 steps an epoch, 42 in all."""


def begun(
    plan: Plan = PLAN, ranks: int = 2, *, state: RunState | None = None, resumed_from: int | None = 0
) -> RunState:
    """Begins an attempt, the first or a further one."""
    found = state or RunState()
    start = RunStarted(
        run_id="a",
        host="",
        pid=1,
        attempt=2 if state else 1,
        resumed_from=resumed_from,
        config=to_toml_values(plan.config),
        world_size=ranks,
        steps_per_epoch=plan.steps_per_epoch,
        total_steps=plan.total_steps,
    )
    apply(found, start)
    return found


def steps(rank: int, first: int, last: int, *, seconds: float = 0.5, loss: float | None = 1.0) -> Metrics:
    count = last - first + 1
    return step_event(rank, first, [*[9.0] * (count - 1), loss], seconds=seconds, examples=50)


def test_a_step_counts_once_every_rank_has_reported_it() -> None:
    state = begun()
    apply(state, steps(0, 1, 10))
    assert (steps_on_all(state), state.ranks[0].step, state.ranks[1].step) == (0, 10, 0)
    apply(state, steps(1, 1, 7))
    assert steps_on_all(state) == 7
    assert summary_of(state, 1.0).steps == 7
    assert summary_of(state, 1.0).epochs == 0.5


SCRIPT = Plan(
    config=RunConfig(backend="script", script="train.py"), facts=None, processes=1, steps_per_epoch=0, total_steps=0
)


def test_of_a_script_all_metrics_are_summed_up() -> None:
    def report(rank: int, step: int, **values: list[float | None]) -> Metrics:
        return Metrics(
            rank=rank, first_step=step, values={name.replace("__", "/"): each for name, each in values.items()}
        )

    state = begun(SCRIPT)
    apply(state, report(0, 1, loss=[2.0, None, 1.0], eval__f1=[0.5, 0.25, 0.75], step_time=[0.1, 0.1, 0.1]))
    # Another rank's values are its own.
    apply(state, report(1, 1, loss=[9.0], wer=[0.3]))
    apply(state, report(0, 4, eval__f1=[0.6], bad=[None]))
    apply(state, report(0, 5, late=[None, 5.0]))
    assert summary_of(state, 1.0).metrics == {
        "loss": Figures(1.0, 1.0, 2.0),
        "eval/f1": Figures(0.6, 0.25, 0.75),
        "wer": Figures(0.3, 0.3, 0.3),
        "bad": Figures(),
        "late": Figures(5.0, 5.0, 5.0),
    }
    begun(SCRIPT, state=state, resumed_from=None)
    apply(state, report(0, 3, loss=[0.5]))
    assert summary_of(state, 2.0).metrics["loss"] == Figures(0.5, 0.5, 2.0)
    assert summary_of(state, 2.0).metrics["wer"] == Figures(0.3, 0.3, 0.3)


def test_a_late_value_is_not_the_last_and_validation_alone_is_progress() -> None:
    state = begun(SCRIPT, 1)
    for step, value in ((200, 0.5), (100, 0.2), (150, 0.6)):
        apply(state, Metrics(rank=0, first_step=step, values={"eval/accuracy": [value]}))
    summary = summary_of(state, 1.0)
    assert (summary.steps, summary.test_accuracy, summary.best_accuracy) == (200, 0.5, 0.6)
    assert summary.metrics["eval/accuracy"] == Figures(0.5, 0.2, 0.6)


def test_epochs_of_a_script_are_those_that_it_reports() -> None:
    state = None
    for number in (1, 2):
        state = begun(SCRIPT, 1, state=state, resumed_from=None if state else 0)
        epochs: list[float | None] = [(step - 1) // 2 for step in range(4 * number - 3, 4 * number + 1)]
        apply(state, Metrics(rank=0, first_step=4 * number - 3, values={"epoch": epochs}))
        assert summary_of(state, 1.0, completed=True).epochs == 2.0 * number
        assert summary_of(state, 1.0).epochs == 2.0 * number


def test_the_rate_leaves_out_the_first_epoch() -> None:
    state = begun()
    apply(state, steps(0, 1, 13, seconds=100))
    assert summary_of(state, 1.0).examples_per_second is None
    # 14 is still of the first epoch; rank 1 goes the same way at the same time.
    apply(state, steps(0, 14, 18, seconds=0.25))
    apply(state, steps(1, 1, 18, seconds=77))
    assert summary_of(state, 1.0).examples_per_second == pytest.approx(100 / 0.25)


@pytest.mark.parametrize(
    "config", [RunConfig(global_batch_size=100, epochs=1), RunConfig(global_batch_size=100, epochs=9, max_steps=14)]
)
def test_with_one_epoch_the_rate_leaves_out_the_first_tenth(config: RunConfig) -> None:
    state = begun(make_plan(config), 1)
    apply(state, steps(0, 1, 1, seconds=100))
    apply(state, steps(0, 2, 14, seconds=0.5))
    assert summary_of(state, 1.0).examples_per_second == pytest.approx(200)


def test_a_run_of_one_step_has_a_rate_too() -> None:
    state = begun(make_plan(RunConfig(global_batch_size=100, max_steps=1)), 1)
    apply(state, steps(0, 1, 1, seconds=0.5))
    assert summary_of(state, 1.0).examples_per_second == pytest.approx(200)


@pytest.mark.parametrize(
    ("losses", "expected"), [((1.0, 3.0), 2.0), ((1.0, None), None), ((None, None), None), ((1.0,), 1.0)]
)
def test_the_loss_is_the_mean_of_the_ranks_last(losses: tuple[float | None, ...], expected: float | None) -> None:
    state = begun()
    for rank, loss in enumerate(losses):
        apply(state, steps(rank, 1, 5, loss=loss))
    assert summary_of(state, 1.0).loss == expected


def test_the_last_evaluation_counts() -> None:
    state = begun(PLAN, 1)
    for step, accuracy in ((1, 0.5), (2, 0.75)):
        apply(state, evaluation_event(step, None, accuracy))
    apply(state, LogLine(rank=0, stream="stdout", text="nothing to add up"))
    summary = summary_of(state, 1.0)
    assert (summary.test_loss, summary.test_accuracy) == (None, 0.75)


@pytest.mark.parametrize("arrival", [(0, 1), (1, 0)])
def test_of_ranks_that_evaluate_the_first_counts(arrival: tuple[int, int]) -> None:
    state = begun()
    for step in (10, 20):
        for rank in arrival:
            apply(state, evaluation_event(step, step + rank, step / 100 + rank / 10, rank=rank))
    summary = summary_of(state, 1.0)
    assert (summary.test_loss, summary.test_accuracy) == (20, 0.2)
    assert (summary.best_loss, summary.best_accuracy) == (10, 0.2)


def test_the_best_loss_is_the_least_and_the_best_accuracy_the_greatest_of_all_that_counts() -> None:
    state = begun()
    for step, loss, accuracy in ((10, 0.6, 0.95), (20, 0.2, 0.99)):
        apply(state, evaluation_event(step, loss, accuracy))
    begun(state=state, resumed_from=10)
    assert (summary_of(state).best_loss, summary_of(state).best_accuracy) == (0.6, 0.95)
    evaluated: list[tuple[float | None, float | None]] = [(0.5, 0.9), (None, 0.9), (0.3, 0.8), (0.35, None)]
    for step, figures in enumerate(evaluated, 11):
        apply(state, evaluation_event(step, *figures))
    summary = summary_of(state, 1.0)
    assert (summary.best_loss, summary.best_accuracy, summary.test_loss) == (0.3, 0.95, 0.35)


@pytest.mark.parametrize("history", [h.completed, interrupted.failed, interrupted.stopped])
def test_recorded_runs_end_with_what_their_events_come_to(history: Callable[[], list[AnyEvent]]) -> None:
    *events, end = history()
    assert isinstance(end, RunEnded)
    state = begun(make_plan(RunConfig(platform="cpu", devices=2)), 2)
    for event in events:
        apply(state, event)
    told = {name: pytest.approx(figure, abs=1e-3) for name, figure in asdict(end.summary).items()}
    assert asdict(summary_of(state, end.summary.seconds)) == told


def test_step_0_of_an_earlier_attempt_counts() -> None:
    state = begun(SCRIPT, 1)
    apply(state, Metrics(rank=0, first_step=0, values={"loss": [1.0] * 10}))
    begun(SCRIPT, 1, state=state, resumed_from=None)
    assert summary_of(state, 1.0).steps == 10
    apply(state, Metrics(rank=0, first_step=6, values={"loss": [1.0] * 6}))
    assert summary_of(state, 1.0).steps == state.steps_done == 12
