"""A run's results so far, from the events on their way to the journal."""

from __future__ import annotations

from msgspec.structs import replace

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.contract.evaluations import NEVER, Evaluated, Evaluations, extremes
from tuiapp.trainers.contract.events import MAX_FIGURES, AnyEvent, Figures, Metrics, Summary
from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    EPOCH,
    EXAMPLES,
    HELD_OUT,
    STEP_TIME,
    SYNC_WAIT,
    group_of,
    is_loss,
    last_examples,
    loss_of,
    mean,
)
from tuiapp.trainers.state.epoch_meter import EpochMeter
from tuiapp.trainers.state.known_metrics import KNOWN
from tuiapp.trainers.state.timeline import Earlier, timed, warm_after

NOTHING = Earlier()

NOT_RESULTS = (DATA_WAIT, EXAMPLES, STEP_TIME, SYNC_WAIT)


class SummaryMeter:
    """Sums up a run.

    `best` has the extremes of earlier attempts' evaluations, `before` what the run had come to: of an attempt in which
    no rank reports anything it stays that.
    """

    def __init__(
        self,
        plan: Plan,
        world_size: int,
        resumed_from: int = 0,
        best: Evaluated = NEVER,
        before: Summary | None = None,
    ) -> None:
        self._plan, self._before = plan, before
        self._figures = dict(before.metrics) if before else {}
        earlier = self._figures.get(EPOCH)
        self._reported = EpochMeter(from_zero=earlier is not None and earlier.least == 0)
        self._rank_of: dict[str, int] = {}
        """Metric → the first rank that reported it."""
        self._from_zero = False
        """Its first step was 0: steps 0 to 399 are 400."""
        self._step = dict.fromkeys(range(world_size), resumed_from)
        self._losses: dict[str, dict[int, float | None]] = {}
        """Metric that may be the loss → rank → last value."""
        self._sizes: dict[int, float] = {}
        """Rank → examples of its last step."""
        self._evaluations = Evaluations(best)
        self._seconds = self._steps = 0.0
        self._warm_after = warm_after(resumed_from, plan.total_steps, plan.steps_per_epoch)

    @property
    def step(self) -> int:
        """The last step that every rank has reported; of a script, in which one may report for all, that any has."""
        return (min if self._plan.facts else max)(self._step.values())

    def last_step(self, rank: int) -> int:
        return self._step.get(rank, 0)

    def add(self, event: AnyEvent) -> None:
        if not isinstance(event, Metrics):
            return
        self._before = None
        if event.is_training:
            self._from_zero |= event.first_step == 0
            self._step[event.rank] = max(self._step.get(event.rank, 0), event.last_step)
        self._evaluations.add(event)
        add_figures(self._figures, event, self._rank_of, of_script=not self._plan.facts)
        if EPOCH in event.values and self._rank_of.get(EPOCH) == event.rank:
            lows, highs = ((each or event.values).get(EPOCH, event.values[EPOCH]) for each in (event.lows, event.highs))
            self._reported.add((step for step, _ in event.places()), lows, highs)
        for name, column in event.values.items():
            if is_loss(name):
                self._sizes[event.rank] = last_examples(event.values, event.counts)
                self._losses.setdefault(name, {})[event.rank] = column[-1]
            elif name == STEP_TIME and event.rank == 0:
                # Ranks move in lockstep: rank 0's clock is the run's.
                steps, seconds = timed(event, self._warm_after)
                self._steps += steps
                self._seconds += seconds

    def _epochs(self, *, completed: bool) -> float | None:
        per_epoch = self._plan.steps_per_epoch
        return round(self.step / per_epoch, 3) if per_epoch else self._reported.done(completed=completed)

    def summary(self, seconds: float, earlier: Earlier = NOTHING, *, completed: bool = False) -> Summary:
        """The run's figures now, `seconds` after the start of this attempt."""
        seconds += earlier.seconds
        epochs = self._epochs(completed=completed)
        if self._before is not None:
            # Where a script resumes is not known before its first step.
            if not self._plan.facts:
                return replace(self._before, seconds=seconds)
            return replace(self._before, steps=self.step, epochs=epochs, seconds=seconds)
        batch = self._plan.config.global_batch_size if self._plan.facts else 0
        took = self._seconds + earlier.timed_seconds
        rate = (self._steps + earlier.timed_steps) * batch / took if took and batch else None
        losses = self._losses.get(loss_of(self._losses), {})
        last, best = self._evaluations.last, extremes([self._evaluations.best, earlier.evaluated])
        return Summary(
            steps=self.step + self._from_zero,
            epochs=epochs,
            examples_per_second=rate,
            loss=mean(losses.values(), [self._sizes[rank] for rank in losses]),
            test_loss=last.loss,
            test_accuracy=last.accuracy,
            evaluated_on=self._evaluations.group or "test",
            best_loss=best.loss,
            best_accuracy=best.accuracy,
            seconds=seconds,
            metrics=dict(self._figures),
        )


def is_further(name: str) -> bool:
    """Whether a metric is a figure of an evaluation beside those that every built-in trainer reports."""
    return group_of(name) in HELD_OUT and name not in KNOWN


def add_figures(
    figures: dict[str, Figures], event: Metrics, rank_of: dict[str, int], *, of_script: bool = True
) -> None:
    """Adds a script's values to what its metrics have come to; `rank_of` notes which rank's values those are.

    Of a built-in trainer those of an evaluation beside loss and accuracy: `test/perplexity`, and a user's own.
    """
    for name, column in event.values.items():
        if (
            name in NOT_RESULTS
            or not (of_script or is_further(name))
            or rank_of.setdefault(name, event.rank) != event.rank
        ):
            continue
        if name in figures or len(figures) < MAX_FIGURES:
            figures[name] = figures.get(name, Figures()).followed_by(column)
