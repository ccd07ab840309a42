"""The control skeleton of training, which every backend iterates over.

    for work in training(plan, report, checkpoints):
        match work:
            case Step():
                work.done(update(work.rows, work.rate))
            case Evaluate():
                work.done(evaluate())
            case Save():
                work.done(*snapshot())
            case Export():
                checkpoints.export(snapshot()[0])

The generator decides what comes next, and reports the phase that begins: epochs and their batches, evaluations and
checkpoints when they are due, checkpoints and stops after the step on which all ranks have agreed, and how many steps
may be in flight. It knows no framework: a batch is the numbers of its examples, and losses pass through as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trainers.checkpoints import Checkpoints
from trainers.config.plan import Plan
from trainers.contract.events import Predictions
from trainers.data.datasets import Rows, remaining
from trainers.evaluation import Sums, evaluation_of
from trainers.runtime.reporter import Reporter
from trainers.schedules import learning_rate
from trainers.tensor_files import Tensors


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    """Counted from 1 over the whole run."""
    batch: Rows
    """The examples of its global batch, int64 [global_batch_size]."""
    rows: Any
    rate: np.float32
    is_first: bool
    """In this process: report how its arrays are sharded."""
    in_flight: InFlight
    plan: Plan
    report: Reporter

    def done(self, loss: Any, gradient_norm: Any = None) -> None:
        """Reports the update: `loss` is the mean before it, see `Reporter.step`; the norm is that before clipping."""
        # All of an epoch's steps are waited for before its last is reported: their time is not the evaluation's.
        self.in_flight.add(loss, drain=self.plan.ends_epoch(self.number))
        self.report.step(self.number, loss, self.plan.local_batch_size, float(self.rate), gradient_norm)


@dataclass(frozen=True, slots=True)
class Evaluate:
    step: int
    plan: Plan
    report: Reporter

    def done(self, sums: Sums) -> None:
        """Reports the evaluation from its sums over all ranks, see `trainers.evaluation`."""
        data = self.plan.data
        found = evaluation_of(sums, data.classes)
        self.report.evaluation(self.step, found.loss, found.accuracy, found.examples)
        self.report.predictions(
            Predictions(step=self.step, counts=found.counts, names=list(data.class_names), worst=found.worst)
        )


@dataclass(frozen=True, slots=True)
class Save:
    step: int
    checkpoints: Checkpoints

    def done(self, model: Tensors, state: Tensors) -> None:
        self.checkpoints.save(self.step, model, state)


@dataclass(frozen=True, slots=True)
class Export:
    """All steps are made; the trained model can be exported."""


Work: TypeAlias = Step | Evaluate | Save | Export


class InFlight:
    """Bounds the steps given to a framework but not yet computed to `limit`; 0 waits for each.

    `wait` waits until a loss is computed; None if the framework needs no bound.
    """

    def __init__(self, limit: int, wait: Callable[[Any], object] | None) -> None:
        self._limit, self._wait = limit, wait
        self._losses: deque[Any] = deque()

    def add(self, loss: Any, *, drain: bool) -> None:
        """Adds a step; waits for older ones, or with `drain` for all."""
        if self._wait is not None:
            self._losses.append(loss)
            while len(self._losses) > (0 if drain else self._limit):
                self._wait(self._losses.popleft())


def training(
    plan: Plan,
    report: Reporter,
    checkpoints: Checkpoints,
    *,
    place: Callable[[Rows], Iterable[Any]] = iter,
    wait: Callable[[Any], object] | None = None,
    limit: int = 0,
) -> Iterator[Work]:
    """Yields the work of a process, from the first step, or the one after its checkpoint, to the last.

    `place` turns an epoch's example numbers, int64 [steps, global_batch_size], into what each step gets: moved to the
    device at once rather than step by step, or the batches themselves, read ahead. `wait` waits until a loss is
    computed, if the framework itself does not bound steps in flight; there are then at most `limit`.
    """
    done = checkpoints.resumed.step if checkpoints.resumed else 0
    in_flight = InFlight(limit, wait)
    for epoch in plan.epochs_after(done):
        report.phase("training")
        first, order = remaining(plan, epoch, done)
        for number, (batch, rows) in enumerate(zip(order, place(order), strict=True), start=first):
            if report.save_before(number):
                report.phase("checkpointing")
                yield Save(number - 1, checkpoints)
                report.phase("training")
            if report.stop_before(number):
                return
            yield Step(number, batch, rows, learning_rate(plan, number), number == done + 1, in_flight, plan, report)
        if plan.evaluates_after(number):
            report.phase("evaluating")
            yield Evaluate(number, plan, report)
        if plan.saves_after(number):
            report.phase("checkpointing")
            yield Save(number, checkpoints)
    yield Export()
