"""A run's figures, added up from its events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import asdict, replace

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.config.plan import Plan, make_plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.events import (
    MAX_FIGURES,
    AnyEvent,
    Figures,
    LogLine,
    Metrics,
    RunEnded,
    RunStarted,
    Summary,
)
from tuiapp.trainers.contract.status import Status
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.status_meter import NOTHING, StatusMeter
from tuiapp.trainers.state.timeline import Earlier

PLAN = make_plan(RunConfig(devices=2, global_batch_size=100, epochs=3))
"""14 steps an epoch, 42 in all."""


def metered(
    plan: Plan = PLAN,
    ranks: int = 2,
    *,
    before: Status = NOTHING,
    resumed_from: int | None = 0,
    evaluated: Evaluated | None = None,
) -> StatusMeter:
    """A meter of an attempt that has begun."""
    curves = Curves(earlier=Earlier(evaluated=evaluated)) if evaluated else None
    meter = StatusMeter(before, curves=lambda: curves)
    meter.add(
        RunStarted(
            run_id="a",
            host="",
            pid=1,
            attempt=1 + (before is not NOTHING),
            resumed_from=resumed_from,
            config=to_toml_values(plan.config),
            world_size=ranks,
            steps_per_epoch=plan.steps_per_epoch,
            total_steps=plan.total_steps,
        )
    )
    return meter


def steps(rank: int, first: int, last: int, *, seconds: float = 0.5, loss: float | None = 1.0) -> Metrics:
    count = last - first + 1
    return step_event(rank, first, [*[9.0] * (count - 1), loss], seconds=seconds, examples=50)


def test_nothing_yet() -> None:
    meter = metered()
    assert meter.step == 0
    assert meter.summary(3.0) == Summary(seconds=3.0)


def test_a_step_counts_once_every_rank_has_reported_it() -> None:
    meter = metered()
    meter.add(steps(0, 1, 10))
    assert (meter.step, meter.last_step(0), meter.last_step(1)) == (0, 10, 0)
    meter.add(steps(1, 1, 7))
    assert meter.step == 7
    assert meter.summary(1.0).steps == 7
    assert meter.summary(1.0).epochs == 0.5


SCRIPT = Plan(
    config=RunConfig(backend="script", script="train.py"), facts=None, processes=1, steps_per_epoch=0, total_steps=0
)


def test_of_a_script_all_metrics_are_summed_up() -> None:
    def report(rank: int, step: int, **values: list[float | None]) -> Metrics:
        return Metrics(
            rank=rank, first_step=step, values={name.replace("__", "/"): each for name, each in values.items()}
        )

    meter = metered(SCRIPT)
    meter.add(report(0, 1, loss=[2.0, None, 1.0], eval__f1=[0.5, 0.25, 0.75], step_time=[0.1, 0.1, 0.1]))
    # Another rank's values are its own.
    meter.add(report(1, 1, loss=[9.0], wer=[0.3]))
    meter.add(report(0, 4, eval__f1=[0.6], bad=[None]))
    meter.add(report(0, 5, late=[None, 5.0]))
    assert meter.summary(1.0).metrics == {
        "loss": Figures(1.0, 1.0, 2.0),
        "eval/f1": Figures(0.6, 0.25, 0.75),
        "wer": Figures(0.3, 0.3, 0.3),
        "bad": Figures(),
        "late": Figures(5.0, 5.0, 5.0),
    }
    again = metered(SCRIPT, before=meter.status(0), resumed_from=None)
    assert again.summary(2.0).metrics == meter.summary(1.0).metrics
    again.add(report(0, 3, loss=[0.5]))
    assert again.summary(2.0).metrics["loss"] == Figures(0.5, 0.5, 2.0)
    assert again.summary(2.0).metrics["wer"] == Figures(0.3, 0.3, 0.3)


def test_step_0_of_an_earlier_attempt_counts() -> None:
    state = RunState()
    meter = StatusMeter(curves=lambda: state.curves)
    config: dict[str, object] = {"backend": "script", "script": "train.py"}
    for attempt, resumed_from, steps in ((1, 0, range(10)), (2, None, range(6, 12))):
        begun = RunStarted(
            run_id="a", host="", pid=1, config=config, world_size=1, attempt=attempt, resumed_from=resumed_from
        )
        values: dict[str, list[float | None]] = {"loss": [1.0] * len(steps)}
        for event in (begun, Metrics(rank=0, first_step=steps[0], values=values)):
            apply(state, event)
            meter.add(event)
    assert meter.summary(1.0).steps == state.steps_done == 12


def test_a_late_value_is_not_the_last_and_validation_alone_is_progress() -> None:
    meter = metered(SCRIPT, 1)
    for step, value in ((200, 0.5), (100, 0.2), (150, 0.6)):
        meter.add(Metrics(rank=0, first_step=step, values={"eval/accuracy": [value]}))
    summary = meter.summary(1.0)
    assert (summary.steps, summary.test_accuracy, summary.best_accuracy) == (200, 0.5, 0.6)
    assert summary.metrics["eval/accuracy"] == Figures(0.5, 0.2, 0.6)


def test_epochs_of_a_script_are_those_of_its_curves() -> None:
    curves = Curves()
    meter = StatusMeter(curves=lambda: curves)
    for number in (1, 2):
        begun = h.started(1, attempt=number, resumed_from=None if number > 1 else 0)
        begun = replace(begun, config=to_toml_values(SCRIPT.config), steps_per_epoch=0)
        epochs: list[float | None] = [(step - 1) // 2 for step in range(4 * number - 3, 4 * number + 1)]
        reported = Metrics(rank=0, first_step=4 * number - 3, values={"epoch": epochs})
        for event in (begun, reported):
            meter.add(event)
            curves.fold([event])
        assert meter.summary(1.0, completed=True).epochs == 2.0 * number
        assert meter.summary(1.0).epochs == 2.0 * number


def test_the_figures_of_a_script_are_bounded_and_a_built_in_run_has_none() -> None:
    meter = metered(SCRIPT, 1)
    for number in range(2 * MAX_FIGURES):
        meter.add(Metrics(rank=0, first_step=1, values={f"m{number}": [1.0]}))
    meter.add(Metrics(rank=0, first_step=2, values={"m0": [2.0]}))
    assert list(meter.summary(1.0).metrics) == [f"m{number}" for number in range(MAX_FIGURES)]
    assert meter.summary(1.0).metrics["m0"] == Figures(2.0, 1.0, 2.0)
    meter = metered(PLAN, 1)
    meter.add(steps(0, 1, 10))
    assert meter.summary(1.0).metrics == {}


def test_a_rank_that_nobody_planned_and_that_has_reported_nothing_has_no_step() -> None:
    assert metered().last_step(2) == 0


def test_an_evaluation_is_no_step() -> None:
    """The steps that lead to it may be lost: a checkpoint there is not covered."""
    meter = metered(PLAN, 1)
    meter.add(steps(0, 1, 10))
    meter.add(evaluation_event(14, 0.5, 0.9))
    assert (meter.step, meter.summary(1.0).test_accuracy) == (10, 0.9)
    meter.add(Metrics(rank=0, first_step=20, values={"train/ppl": [3.0]}))
    assert meter.step == 20


def test_the_rate_leaves_out_the_first_epoch() -> None:
    meter = metered()
    meter.add(steps(0, 1, 13, seconds=100))
    assert meter.summary(1.0).examples_per_second is None
    # 14 is still of the first epoch; rank 1 goes the same way at the same time.
    meter.add(steps(0, 14, 18, seconds=0.25))
    meter.add(steps(1, 1, 18, seconds=77))
    assert meter.summary(1.0).examples_per_second == pytest.approx(100 / 0.25)


@pytest.mark.parametrize(
    "config",
    [RunConfig(global_batch_size=100, epochs=1), RunConfig(global_batch_size=100, epochs=9, max_steps=14)],
)
def test_with_one_epoch_the_rate_leaves_out_the_first_tenth(config: RunConfig) -> None:
    meter = metered(make_plan(config), 1)
    meter.add(steps(0, 1, 1, seconds=100))
    meter.add(steps(0, 2, 14, seconds=0.5))
    assert meter.summary(1.0).examples_per_second == pytest.approx(200)


def test_a_run_of_one_step_has_a_rate_too() -> None:
    meter = metered(make_plan(RunConfig(global_batch_size=100, max_steps=1)), 1)
    meter.add(steps(0, 1, 1, seconds=0.5))
    assert meter.summary(1.0).examples_per_second == pytest.approx(200)


def test_windows_count_all_their_steps() -> None:
    meter = metered(PLAN, 1)
    meter.add(
        step_event(0, 1, [1.0, 2.0, 3.0], seconds=[100.0, 0.5, 0.25], examples=[700, 700, 400], counts=[14, 7, 4])
    )
    assert meter.step == 25
    assert meter.summary(1.0).examples_per_second == pytest.approx(11 * 100 / (7 * 0.5 + 4 * 0.25))


@pytest.mark.parametrize(
    ("losses", "expected"), [((1.0, 3.0), 2.0), ((1.0, None), None), ((None, None), None), ((1.0,), 1.0)]
)
def test_the_loss_is_the_mean_of_the_ranks_last(losses: tuple[float | None, ...], expected: float | None) -> None:
    meter = metered()
    for rank, loss in enumerate(losses):
        meter.add(steps(rank, 1, 5, loss=loss))
    assert meter.summary(1.0).loss == expected


def test_the_last_evaluation_counts() -> None:
    meter = metered(PLAN, 1)
    for step, accuracy in ((1, 0.5), (2, 0.75)):
        meter.add(evaluation_event(step, None, accuracy))
    meter.add(LogLine(rank=0, stream="stdout", text="nothing to add up"))
    summary = meter.summary(1.0)
    assert (summary.test_loss, summary.test_accuracy) == (None, 0.75)


@pytest.mark.parametrize("arrival", [(0, 1), (1, 0)])
def test_of_ranks_that_evaluate_the_first_counts(arrival: tuple[int, int]) -> None:
    meter = metered()
    for step in (10, 20):
        for rank in arrival:
            meter.add(evaluation_event(step, step + rank, step / 100 + rank / 10, rank=rank))
    summary = meter.summary(1.0)
    assert (summary.test_loss, summary.test_accuracy) == (20, 0.2)
    assert (summary.best_loss, summary.best_accuracy) == (10, 0.2)


def test_the_best_evaluation_is_kept_over_attempts() -> None:
    def evaluated(*accuracies: float, best: float | None = None) -> float | None:
        meter = metered(PLAN, 1, evaluated=Evaluated(accuracy=best))
        for accuracy in accuracies:
            meter.add(evaluation_event(1, None, accuracy))
        return meter.summary(1.0).best_accuracy

    assert evaluated() is None
    assert evaluated(0.5, 0.75, 0.6) == 0.75
    assert evaluated(0.5, best=0.9) == 0.9


@pytest.mark.parametrize("by", ["accuracy", "loss"])
def test_the_best_loss_is_the_least_and_the_best_accuracy_the_greatest(by: str) -> None:
    earlier = Evaluated(0.6, 0.95)
    for best, expected in ((Evaluated(), (0.3, 0.9)), (earlier, (0.3, 0.95))):
        meter = metered(make_plan(RunConfig(platform="cpu", devices=2, best=by)), evaluated=best)
        for step, (loss, accuracy) in enumerate([(0.5, 0.9), (None, 0.9), (0.3, 0.8), (0.35, None)], 1):
            meter.add(evaluation_event(step, loss, accuracy))
        summary = meter.summary(1.0)
        assert (summary.best_loss, summary.best_accuracy) == expected


@pytest.mark.parametrize("history", [h.completed, interrupted.failed, interrupted.stopped])
def test_recorded_runs_end_with_what_their_events_come_to(history: Callable[[], list[AnyEvent]]) -> None:
    *events, end = history()
    assert isinstance(end, RunEnded)
    meter = metered(make_plan(RunConfig(platform="cpu", devices=2)), 2)
    for event in events:
        meter.add(event)
    told = {name: pytest.approx(figure, abs=1e-3) for name, figure in asdict(end.summary).items()}
    assert asdict(meter.summary(end.summary.seconds)) == told
