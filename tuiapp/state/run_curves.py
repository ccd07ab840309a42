"""The curves of a whole run, its ranks taken together, for laying several runs over each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from trainers.contract.events import AnyEvent, Evaluation, RunStarted, Steps
from trainers.contract.gaps import Gaps
from tuiapp.state.curves import Timeline
from tuiapp.state.series import Floats, Integers, Series, steps_of

RunMetric: TypeAlias = Literal[
    "loss", "test loss", "accuracy", "examples/s", "step time", "learning rate", "gradient norm"
]
Axis: TypeAlias = Literal["step", "time", "epoch"]

RUN_METRICS: tuple[RunMetric, ...] = (
    "loss",
    "test loss",
    "accuracy",
    "examples/s",
    "step time",
    "learning rate",
    "gradient norm",
)
"""In the order in which the key for the next one goes through them."""

AXES: tuple[Axis, ...] = ("step", "time", "epoch")

BUCKETS = 2048
"""Of each curve: more than any terminal has dots across."""

MOST = 2**52
"""Larger numbers are no count of anything: what holds one is damage."""


class RunCurves:
    """Takes in a run's events; what it keeps is bounded, however long the run.

    A bucket of a curve joins the values of all ranks at its steps: its mean is the mean over the ranks. In which order
    the ranks report does not matter.
    """

    def __init__(self) -> None:
        self.series: dict[RunMetric, Series] = {name: Series(BUCKETS) for name in RUN_METRICS}
        self.timeline = Timeline()
        self.gaps = Gaps()
        """The steps that its journal lacks."""
        self.steps_per_epoch = 0
        """0 when not known."""
        self._world_size = 1

    def fold(self, events: Iterable[AnyEvent]) -> None:
        """Take in events; never raises for what they say."""
        steps: list[Steps] = []
        evaluations: list[Evaluation] = []
        for event in events:
            if isinstance(event, Steps) and _is_sound(event):
                steps.append(event)
                self.timeline.add(event.time, event.last_step)
                self.gaps.add(event)
            elif isinstance(event, Evaluation) and 0 <= event.step < MOST:
                evaluations.append(event)
            elif isinstance(event, RunStarted) and 0 <= event.resumed_from < MOST:
                self._settle(steps, evaluations)
                steps, evaluations = [], []
                self._begin(event)
        self._settle(steps, evaluations)

    def places(self, steps: Floats, axis: Axis) -> Floats:
        """Where steps lie on an axis: seconds of the run, epochs, or the steps themselves."""
        if axis == "time":
            return self.timeline.seconds(steps)
        if axis == "epoch":
            return steps / self.steps_per_epoch if self.steps_per_epoch else np.full(len(steps), np.nan)
        return steps

    def _begin(self, event: RunStarted) -> None:
        self._world_size = min(max(1, event.world_size), 65_536)
        self.steps_per_epoch = event.steps_per_epoch if 0 < event.steps_per_epoch < MOST else 0
        self.timeline.begin(event.time, event.resumed_from)
        self.gaps.add(event)
        # What an earlier attempt did after the checkpoint is taken anew.
        for series in self.series.values():
            series.truncate(event.resumed_from + 1)

    def _settle(self, steps: Sequence[Steps], evaluations: Sequence[Evaluation]) -> None:
        if steps:
            self._add_steps(steps)
        if evaluations:
            at = np.array([one.step for one in evaluations], np.int64)
            self._add("test loss", at, np.array([one.loss for one in evaluations], np.float64))
            self._add("accuracy", at, np.array([one.accuracy for one in evaluations], np.float64))

    def _add_steps(self, events: Sequence[Steps]) -> None:
        steps = np.concatenate([steps_of(one.first_step, len(one.losses), one.counts) for one in events])
        seconds = _joined([one.seconds for one in events])
        counts = _joined([one.counts or [1] * len(one.losses) for one in events])
        self._add("loss", steps, _joined([one.losses for one in events]))
        self._add("step time", steps, seconds)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Each rank has its part of the batch.
            rates = self._world_size * _joined([one.examples for one in events]) / (seconds * counts)
        self._add("examples/s", steps, rates)
        for name, field in (("learning rate", "learning_rates"), ("gradient norm", "gradient_norms")):
            told = [one for one in events if len(getattr(one, field, None) or ()) == len(one.losses)]
            if told:
                at = np.concatenate([steps_of(one.first_step, len(one.losses), one.counts) for one in told])
                self._add(name, at, _joined([getattr(one, field) for one in told]))  # type: ignore[arg-type]

    def _add(self, name: RunMetric, steps: Integers, values: Floats) -> None:
        order = np.argsort(steps, kind="stable")
        self.series[name].add(steps[order], values[order])


def _joined(lists: Sequence[Sequence[float | None]]) -> Floats:
    return np.array([value for values in lists for value in values], np.float64)


def _is_sound(event: Steps) -> bool:
    """Whether its lists go together and its numbers are numbers of something."""
    size, counts = len(event.losses), event.counts
    return (
        size > 0
        and 0 < event.first_step < MOST
        and len(event.seconds) == len(event.examples) == size
        and all(abs(each) < MOST for each in event.examples)
        and (counts is None or (len(counts) == size and all(0 < each < 2**31 for each in counts)))
    )
