"""What runs are best by: a metric and a direction. Chosen by the user, or guessed from what the runs report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tuiapp.trainers.contract.metrics import ACCURACIES, split
from tuiapp.trainers.state.known_metrics import format_accuracy, metric
from tuiapp.trainers.state.results import result_value, result_values
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import sanitize

T = TypeVar("T")

GUESSED_FROM = 100
"""Runs: the guess is made anew with each list."""


@dataclass(frozen=True, slots=True)
class Objective:
    name: str
    """Of a metric, as in the journal."""
    rises: bool
    """Whether more is better."""

    def __str__(self) -> str:
        name = sanitize(self.name, 40) if "/" in self.name else metric(self.name).label
        return f"{'highest' if self.rises else 'lowest'} {name}"

    @property
    def label(self) -> str:
        """The metric in words: "test accuracy"."""
        return sanitize(" ".join(part for part in split(self.name) if part), 40)

    def format(self, value: float | None) -> str:
        """Formats a value of the metric, an accuracy in per cent."""
        is_accuracy = split(self.name)[1] in ACCURACIES
        return format_accuracy(value) if is_accuracy else metric(self.name).format(value)

    @property
    def turned(self) -> Objective:
        return Objective(self.name, not self.rises)

    def value(self, info: RunInfo) -> float | None:
        """Returns the best value that a list knows, of what a script sums up the last; None if it is not finite."""
        summary = info.summary
        value: object = None
        if self.name == f"{summary.evaluated_on}/accuracy" and self.rises:
            value = info.best_accuracy
        elif self.name == f"{summary.evaluated_on}/loss" and not self.rises:
            value = summary.best_loss
        elif (figures := summary.metrics.get(self.name)) is not None:
            value = figures.greatest if self.rises else figures.least
        if value is None:
            value = result_value(info, self.name)
        if value is None:
            value = info.facts.config.get(self.name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]

    def best(self, infos: Iterable[RunInfo]) -> RunInfo | None:
        """Returns the best run, of equal ones the first; None if no run is better than another."""
        return self.best_of((value, info) for info in infos if (value := self.value(info)) is not None)

    def best_of(self, known: Iterable[tuple[float, T]]) -> T | None:
        """Returns that with the best value, of equal ones the first; None if none is better than another."""
        known = list(known)
        if len({value for value, _ in known}) < 2:
            return None
        return (max if self.rises else min)(known, key=lambda one: one[0])[1]

    @property
    def sort(self) -> str:
        """The name of the column that shows it."""
        last = self.name.rpartition("/")[2] if metric(self.name).held_out else ""
        return {("accuracy", True): "accuracy", ("loss", False): "best_loss"}.get((last, self.rises), self.name)


def objective_names(infos: Iterable[RunInfo]) -> list[str]:
    """Returns the metrics that runs can be best by: the numbers among their results."""
    names: dict[str, None] = {}
    for info in infos:
        for name, value in result_values(info).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                names[name] = None
    return list(names)


def guess(infos: Sequence[RunInfo]) -> Objective | None:
    """Returns what the first runs suggest: an evaluation's accuracy or such, or else its loss, or else the loss."""
    counts: dict[str, int] = {}
    for info in infos[:GUESSED_FROM]:
        for name in objective_names([info]):
            counts[name] = counts.get(name, 0) + 1
    return suggested(counts)


def suggested(counts: Mapping[str, int]) -> Objective | None:
    """Returns what metrics suggest, given with how many runs have each."""

    def worth(name: str) -> tuple[bool, bool, bool, int]:
        shown = metric(name)
        return shown.rises, shown.held_out, "/" in name, counts[name]

    name = max((one for one in counts if metric(one).rises or one.endswith("loss")), key=worth, default="")
    return Objective(name, metric(name).rises) if name else None


def objective_of(infos: Sequence[RunInfo], name: str, *, rises: bool) -> Objective | None:
    """Returns the chosen objective; the guess if no run has a value of it, or none is chosen."""
    chosen = Objective(name, rises)
    return chosen if name and any(chosen.value(info) is not None for info in infos) else guess(infos)


def chosen_of(names: Iterable[str], name: str, *, rises: bool) -> Objective | None:
    """Returns the chosen objective of one run that reports these metrics; what they suggest if it lacks that."""
    counts = dict.fromkeys(names, 1)
    return Objective(name, rises) if name in counts else suggested(counts)
