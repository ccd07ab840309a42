"""A run's results so far, from the events on their way to the journal."""

from __future__ import annotations

from trainers.config.plan import Plan
from trainers.contract.evaluations import NEVER, Evaluated, Evaluations
from trainers.contract.events import AnyEvent, Metrics, Summary
from trainers.contract.metrics import LOSS, STEP_TIME, mean


class Tally:
    """Sums up a run; `best` is the best evaluation of earlier attempts."""

    def __init__(self, plan: Plan, world_size: int, resumed_from: int = 0, best: Evaluated = NEVER) -> None:
        self._plan = plan
        self._step = dict.fromkeys(range(world_size), resumed_from)
        self._loss: dict[int, float | None] = {}
        self._evaluations = Evaluations(plan.config.best, best)
        self._seconds = self._steps = 0.0
        total, per_epoch = plan.total_steps, plan.steps_per_epoch
        left = total - resumed_from
        self._warm_after = resumed_from + (per_epoch if left > per_epoch else left // 10)

    @property
    def step(self) -> int:
        """The last step that every rank has reported; of a script, in which one may report for all, that any has."""
        return (min if self._plan.facts else max)(self._step.values())

    def last_step(self, rank: int) -> int:
        return self._step.get(rank, 0)

    def add(self, event: AnyEvent) -> None:
        if not isinstance(event, Metrics):
            return
        if event.is_training:
            self._step[event.rank] = max(self._step.get(event.rank, 0), event.last_step)
        self._evaluations.add(event)
        for name, column in event.values.items():
            if name == LOSS:
                self._loss[event.rank] = column[-1]
            elif name == STEP_TIME and event.rank == 0:
                self._add_time(event.first_step, column, event.counts or [1] * len(column))

    def summary(self, seconds: float) -> Summary:
        """The run's figures now, `seconds` after its start."""
        batch = self._plan.config.global_batch_size if self._plan.facts else 0
        rate = self._steps * batch / self._seconds if self._seconds and batch else None
        last, best = self._evaluations.last, self._evaluations.best
        return Summary(
            steps=self.step,
            epochs=round(self.step / self._plan.steps_per_epoch, 3) if self._plan.steps_per_epoch else None,
            examples_per_second=rate,
            loss=mean(self._loss.values()),
            test_loss=last.loss,
            test_accuracy=last.accuracy,
            best_loss=best.loss,
            best_accuracy=best.accuracy,
            seconds=seconds,
        )

    def _add_time(self, step: int, seconds: list[float | None], counts: list[int]) -> None:
        # Ranks move in lockstep: rank 0's clock is the run's.
        for each, count in zip(seconds, counts, strict=True):
            if step > self._warm_after and each is not None:
                self._steps += count
                self._seconds += count * each
            step += count
