"""What runs came to, by the names of metrics."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from tuiapp.trainers.state.summary import RunInfo


class Spread(NamedTuple):
    """A figure of several runs."""

    mean: float
    deviation: float | None
    """The standard deviation of a sample; None of a single value."""
    median: float
    least: float
    most: float
    size: int
    """How many runs."""

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Returns that of the values that are known; None if none is."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        least, most, others = min(known), max(known), len(known) - 1
        # Of equal values the sum would differ in its last digit.
        mean = least if least == most else sum(known) / len(known)
        # Many times as fast as `statistics.stdev`.
        deviation = math.sqrt(sum([(value - mean) ** 2 for value in known]) / others) if others else None
        return cls(mean, deviation, statistics.median(known), least, most, len(known))

    @property
    def half(self) -> float:
        """Half of the range, over the median: "± 3 %"."""
        return (self.most - self.least) / 2 / self.median if self.median else 0.0


def median(values: Iterable[float | None]) -> float | None:
    """Returns the median of those that are known; None if none is."""
    found = Spread.of(values)
    return found.median if found else None


def result_value(info: RunInfo, name: str) -> object:
    """Returns what a run came to, by a metric's name; what a script sums up has names of its own. None for none."""
    summary = info.summary
    group, _, last = name.rpartition("/")
    value: object = summary.loss if name == "loss" else None
    if group == summary.evaluated_on:
        value = {"loss": summary.test_loss, "accuracy": summary.test_accuracy}.get(last)
    if value is None:
        value = info.facts.summary.get(name)
    if value is None and (figures := summary.metrics.get(name)) is not None:
        value = figures.last
    return value


def result_values(info: RunInfo) -> dict[str, object]:
    """Returns all results of a run by name."""
    summary = info.summary
    evaluated = (f"{summary.evaluated_on}/loss", f"{summary.evaluated_on}/accuracy")
    names = dict.fromkeys((*summary.metrics, *info.facts.summary, "loss", *evaluated))
    return {name: value for name in names if (value := result_value(info, name)) is not None}
