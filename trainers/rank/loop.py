"""The control skeleton of training, which every backend iterates over.

    for work in training(plan, report, checkpoints):
        match work:
            case Step():
                work.done(update(work.rows, work.rate))
            case Evaluate():
                work.done(evaluate())
            case Compare():
                work.done(checksums())
            case Save():
                work.done(*snapshot())
            case Export():
                checkpoints.export(snapshot()[0])

The generator decides what comes next, and reports the phase that begins: epochs and their batches, the comparison of
replicas after each, evaluations and checkpoints when they are due, checkpoints and stops after the step on which all
ranks have agreed, and how many steps may be in flight. A step is reported once it is computed, so that its time is the
devices', not that of telling them what to do. It knows no framework: a batch is the numbers of its examples, and losses
pass through as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import best_by
from tuiapp.trainers.contract.events import WORST_EXAMPLES, Alert, Predictions
from tuiapp.trainers.contract.metrics import SCALE, SKIPPED
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.evaluation import Sums, evaluation_of, pictures_of
from tuiapp.trainers.rank.profile import Tracing
from tuiapp.trainers.rank.replicas import Checksums, Comparison
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.schedules import learning_rate
from tuiapp.trainers.rank.tensor_files import Tensors
from tuiapp.trainers.sources.augmentation import Order, with_draws
from tuiapp.trainers.sources.datasets import Rows, remaining
from tuiapp.trainers.sources.own_loss import CROSS_ENTROPY, own_of
from tuiapp.trainers.tasks.catalog import TASKS, Predict

STEPS_IN_FLIGHT = 8
"""Enough to keep the devices busy, few enough to stop soon and to hold little memory."""

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    """The step's number, counted from 1 over the whole run."""
    batch: Rows
    """The examples of its global batch, int64 [global_batch_size]."""
    rows: Any
    rate: np.float32
    is_first: bool
    """Whether it is this process's first: the backend then reports how its arrays are sharded."""
    waited_s: float
    """Seconds its process waited for the batch."""
    in_flight: InFlight

    def done(self, loss: Any, gradient_norm: Any = None) -> None:
        """Has the update reported once it is computed; see `Reporter.step` for its loss, and norm before clipping."""
        self.in_flight.add(self, loss, gradient_norm)


@dataclass(frozen=True, slots=True)
class Evaluate:
    step: int
    plan: Plan
    report: Reporter

    def done(self, sums: Sums, predictor: Callable[[], Predict] | None = None) -> None:
        """Reports the evaluation from its sums over all ranks, see `tuiapp.trainers.rank.evaluation`.

        `predictor` gives the model as a task asks it that shows what it makes; None on a rank that is not asked.
        """
        data, config, task = self.plan.data, self.plan.config, TASKS[self.plan.data.task]
        evaluation = evaluation_of(sums, data.classes, own_of(config.model).figures)
        # What the task reports follows from the loss that is its own.
        of_task = task.figures(evaluation.figures.get(CROSS_ENTROPY, evaluation.loss), evaluation.accuracy)
        figures = {"loss": evaluation.loss, **of_task, **evaluation.figures}
        for name, value in evaluation.figures.items():
            if not isfinite(value):
                text = f"{name} of {config.model} is {value} on the test set: it is left out"
                self.report.send_from_rank0(Alert(kind="metric", step=self.step, text=text))
        self.report.evaluation(self.step, evaluation.examples // data.labels, figures, best_by(config))
        samples = task.samples(predictor(), data.labels, config.seed) if predictor and task.samples else []
        self.report.send_from_rank0(
            Predictions(
                step=self.step,
                counts=evaluation.counts,
                names=list(data.class_names),
                worst=evaluation.worst,
                samples=samples,
            )
        )
        if evaluation.worst:
            self.report.show(WORST_EXAMPLES, self.step, partial(pictures_of, evaluation.worst, data.class_names))


@dataclass(frozen=True, slots=True)
class Compare:
    """The replicas are to be compared; only of backends that have some, see `Plan.compares_replicas`."""

    step: int
    comparison: Comparison

    def done(self, checksums: Checksums, parts: Sequence[int] = (), models: Sequence[int] = ()) -> None:
        """Reports the comparison; of ranks that have parts of arrays, or other GPUs than others: see `Comparison`."""
        self.comparison.add(self.step, checksums, parts, models)


@dataclass(frozen=True, slots=True)
class Save:
    step: int
    checkpoints: Checkpoints

    def done(self, model: Tensors, state: Tensors, ready: Callable[[], object] = lambda: None) -> None:
        """Has the state saved; see `Checkpoints.save`."""
        self.checkpoints.save(self.step, model, state, ready)


@dataclass(frozen=True, slots=True)
class Export:
    """All steps are made; the trained model can be exported."""


Work: TypeAlias = Step | Compare | Evaluate | Save | Export


class InFlight:
    """The steps that a framework was given, but that are not computed: at most `limit`; 0 waits for each.

    `mark` gives what to wait for of a step just given, from its loss; `wait` waits for that. Without `wait` a step that
    was given is computed.
    """

    def __init__(
        self,
        plan: Plan,
        report: Reporter,
        mark: Callable[[Any], Any],
        wait: Callable[[Any], object] | None,
        limit: int,
    ) -> None:
        self._plan, self._report = plan, report
        self._mark, self._wait = mark, wait or (lambda marked: None)
        self._limit = limit if wait else 0
        self._given: deque[tuple[Step, Any, Any, Any]] = deque()
        report.at_close = self.abandon

    def add(self, step: Step, loss: Any, gradient_norm: Any) -> None:
        self._given.append((step, loss, gradient_norm, self._mark(loss)))
        # The reporting of how the first one's arrays are sharded must neither wait for steps nor count as part of one.
        # An epoch's last is left to the loop: placing the next epoch is part of it.
        self.wait(0 if step.is_first else max(self._limit, self._plan.ends_epoch(step.number)))

    def wait(self, most: int = 0) -> None:
        """Waits until at most so many steps are left, and reports the others."""
        while len(self._given) > most:
            self._wait(self._given[0][3])
            self._report_step()

    def abandon(self) -> None:
        """Reports what is left without waiting: the backend has failed, and its device may never be done."""
        while self._given:
            self._report_step()

    def _report_step(self) -> None:
        step, loss, gradient_norm, _ = self._given.popleft()
        examples, rate = self._plan.examples_of(self._report.rank), float(step.rate)
        self._report.step(step.number, loss, examples, rate, gradient_norm, step.waited_s)


def training(
    plan: Plan,
    report: Reporter,
    checkpoints: Checkpoints,
    *,
    place: Callable[[Order], Iterable[Any]] = iter,
    mark: Callable[[Any], Any] = lambda loss: loss,
    wait: Callable[[Any], object] | None = None,
    limit: int = STEPS_IN_FLIGHT,
    loss_scale: Callable[[], tuple[float, int]] | None = None,
) -> Iterator[Work]:
    """Yields the work of a process, from the first step, or the one after its checkpoint, to the last.

    `place` turns an epoch's example numbers, int64 [steps, global_batch_size], with what is drawn for them, into what
    each step gets: moved to the device at once rather than step by step, or the batches themselves, read ahead. A
    framework that returns before a step is computed gives `wait`, which waits for a step's loss, or what `mark` made of
    it when the step was given. `loss_scale` gives the present scale in float16, and how many steps were skipped:
    reported after each epoch.
    """
    done = checkpoints.resumed.step if checkpoints.resumed else 0
    if own_of(plan.config.model).loss:
        text = f"training minimizes the loss of {plan.config.model}, not cross entropy"
        report.send_from_rank0(Alert(kind="loss", severity="info", step=done, text=text))
    in_flight, tracing = InFlight(plan, report, mark, wait, limit), Tracing(plan, report)
    comparison = Comparison(report)
    number, saved = done, -1
    epochs = _placed(plan, done, place)
    epoch = next(epochs, None)
    while epoch is not None:
        report.phase("training")
        for number, (batch, (rows, waited_s)) in epoch:
            # A stop right after an epoch has its checkpoint already.
            if report.save_before(number) and not (number - 1 == saved and report.stop_before(number)):
                in_flight.wait()
                tracing.finish(number - 1)
                report.phase("checkpointing")
                yield Save(number - 1, checkpoints)
                report.phase("training")
                waited_s = 0.0
            if report.stop_before(number):
                in_flight.wait()
                tracing.finish(number - 1)
                tracing.give_up(number - 1)
                return
            if tracing.due(number):
                in_flight.wait()
                tracing.change(number)
                waited_s = 0.0
            tracing.waited(waited_s)
            is_first = number == done + 1
            yield Step(number, batch, rows, learning_rate(plan, number), is_first, waited_s, in_flight)
            if is_first:
                # Reporting how its arrays are sharded is no part of the second.
                report.restart_clock()
        # The next epoch is placed, and its first batches are read, while the last steps of this one are computed. What
        # follows them, as an evaluation, must neither wait for them nor count as part of one.
        epoch = next(epochs, None)
        in_flight.wait()
        tracing.finish(number)
        if loss_scale and plan.config.precision == "float16" and not report.rank:
            report.metrics(number, dict(zip((SCALE, SKIPPED), loss_scale(), strict=True)))
        if plan.compares_after(number):
            yield Compare(number, comparison)
        if plan.evaluates_after(number):
            report.phase("evaluating")
            yield Evaluate(number, plan, report)
            if report.evaluated is not None:
                checkpoints.patience.add(report.evaluated[1])
        if plan.saves_after(number, due=report.save_due(number)):
            report.phase("checkpointing")
            yield Save(number, checkpoints)
            saved = number
        if checkpoints.patience.is_over and number < plan.total_steps:
            report.send_from_rank0(
                Alert(kind="early-stop", severity="info", step=number, text=checkpoints.patience.reason)
            )
            break
    tracing.give_up(number)
    yield Export()


def _placed(
    plan: Plan, done: int, place: Callable[[Order], Iterable[Any]]
) -> Iterator[Iterator[tuple[int, tuple[Any, tuple[Any, float]]]]]:
    """Yields for each epoch its steps after `done`: number, examples, and what `place` gave, with the wait for it."""
    for epoch in plan.epochs_after(done):
        first, order = remaining(plan, epoch, done)
        placed = place(with_draws(plan, epoch, first, order))
        yield enumerate(zip(order, timed(placed), strict=True), start=first)


def timed(batches: Iterable[Batch]) -> Iterator[tuple[Batch, float]]:
    """Yields each batch with the seconds that asking for it took."""
    source = iter(batches)
    while True:
        began = perf_counter()
        try:
            batch = next(source)
        except StopIteration:
            return
        yield batch, perf_counter() - began
