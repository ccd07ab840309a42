"""What runs are best by: a metric and a direction. Chosen by the user, or guessed from what the runs report.

Runs are compared by their results by name, and by the spread of a figure over several of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.datasets import task_of
from tuiapp.trainers.config.run_config import best_by, figure_of
from tuiapp.trainers.config.script import subject
from tuiapp.trainers.contract.metrics import ACCURACIES, TEST, accuracy_percent, is_number, split
from tuiapp.trainers.state.known_metrics import format_accuracy, metric
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import sanitize

T = TypeVar("T")

GUESSED_FROM = 100
"""Runs: the guess is made anew with each list."""


@dataclass(frozen=True, slots=True)
class Objective:
    name: str
    """The metric's name, as in the journal."""
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
        return float(value) if is_number(value) and math.isfinite(value) else None

    def comparable(self, value: float) -> float:
        """Returns a value as runs are compared by it: accuracies, reported as a share or in per cent, as a share."""
        return accuracy_percent(value) / 100 if split(self.name)[1] in ACCURACIES else value

    def best(self, infos: Iterable[RunInfo]) -> RunInfo | None:
        """Returns the best run, of equal ones the first completed; None if no run is better than another."""
        return self.best_of((value, info.status, info) for info in infos if (value := self.value(info)) is not None)

    def best_of(self, results: Iterable[tuple[float, str, T]]) -> T | None:
        """Returns that with the best value, given with its status; None if none is better than another.

        Of equal ones it is the first that is completed, or else the first.
        """
        sign = 1 if self.rises else -1
        ranked = [
            (sign * self.comparable(value), status == "completed", candidate) for value, status, candidate in results
        ]
        if len({value for value, _, _ in ranked}) < 2:
            return None
        return max(ranked, key=lambda entry: entry[:2])[2]

    @property
    def sort(self) -> str:
        """The full name of the column that shows it."""
        return f"{'max' if self.rises else 'min'}.{self.name}"


def objective_names(infos: Iterable[RunInfo]) -> list[str]:
    """Returns the metrics that runs can be best by: the numbers among their results."""
    names: dict[str, None] = {}
    for info in infos:
        for name, value in result_values(info).items():
            if is_number(value):
                names[name] = None
    return list(names)


def guess(infos: Sequence[RunInfo]) -> Objective | None:
    """Returns what the first runs suggest: what their checkpoints are best by, or else as `suggested`."""
    counts: dict[str, int] = {}
    for info in infos[:GUESSED_FROM]:
        for name in objective_names([info]):
            counts[name] = counts.get(name, 0) + 1
    configs = [info.config for info in infos[:GUESSED_FROM]]
    criteria = {best_by(config) if config and BACKENDS[config.backend].builtin else "" for config in configs}
    return suggested(counts, criteria.pop() if len(criteria) == 1 else "")


def suggested(counts: Mapping[str, int], asked: str = "") -> Objective | None:
    """Returns what metrics suggest, given with how many runs have each; `asked` is what the key `best` says.

    Without that it is an evaluation's accuracy or such, or else its loss, or else the loss.
    """
    figure, rises = figure_of(asked)
    if f"{TEST}/{figure}" in counts:
        return Objective(f"{TEST}/{figure}", rises)

    def worth(name: str) -> tuple[bool, bool, bool, int]:
        shown = metric(name)
        return shown.rises, shown.held_out, "/" in name, counts[name]

    name = max(
        (candidate for candidate in counts if metric(candidate).rises or candidate.endswith("loss")),
        key=worth,
        default="",
    )
    return Objective(name, metric(name).rises) if name else None


def objective_of(infos: Sequence[RunInfo], name: str, *, rises: bool) -> Objective | None:
    """Returns the chosen objective; the guess if no run has a value of it, or none is chosen."""
    chosen = Objective(name, rises)
    return chosen if name and any(chosen.value(info) is not None for info in infos) else guess(infos)


def kind_of_data(info: RunInfo) -> str:
    """Returns what runs are trained on, as far as results of unlike ones mean nothing beside each other.

    That is the task of a built-in trainer's data; each script brings its own.
    """
    if info.config is None:
        return ""
    is_builtin = BACKENDS[info.config.backend].builtin
    return task_of(info.config.dataset).name if is_builtin else subject(info.config)


@dataclass(frozen=True, slots=True)
class Objectives:
    """What runs of each kind of data are best by."""

    by_kind: Mapping[str, Objective]

    @classmethod
    def of_runs(cls, infos: Iterable[RunInfo], name: str, *, rises: bool) -> Objectives:
        """Returns for each kind of data what `objective_of` says, those of most runs first."""
        kinds: dict[str, list[RunInfo]] = {}
        for info in infos:
            kinds.setdefault(kind_of_data(info), []).append(info)
        largest = sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
        objectives = ((kind, objective_of(those, name, rises=rises)) for kind, those in largest)
        return cls({kind: objective for kind, objective in objectives if objective})

    def of(self, info: RunInfo) -> Objective | None:
        """Returns what a run is ranked by; None if no run of its kind has a result."""
        return self.by_kind.get(kind_of_data(info))

    @property
    def distinct(self) -> list[Objective]:
        return list(dict.fromkeys(self.by_kind.values()))


def chosen_of(names: Iterable[str], name: str, *, rises: bool, asked: str = "") -> Objective | None:
    """Returns the chosen objective of one run that reports these metrics; as `suggested` if it lacks that."""
    counts = dict.fromkeys(names, 1)
    return Objective(name, rises) if name in counts else suggested(counts, asked)


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
        numbers = [value for value in values if value is not None]
        if not numbers:
            return None
        least, most, freedom = min(numbers), max(numbers), len(numbers) - 1
        # Of equal values the sum would differ in its last digit.
        mean = least if least == most else sum(numbers) / len(numbers)
        # Many times as fast as `statistics.stdev`.
        deviation = math.sqrt(sum([(value - mean) ** 2 for value in numbers]) / freedom) if freedom else None
        return cls(mean, deviation, statistics.median(numbers), least, most, len(numbers))

    @property
    def half(self) -> float:
        """Half of the range, over the median: "± 3 %"."""
        return (self.most - self.least) / 2 / self.median if self.median else 0.0


def median(values: Iterable[float | None]) -> float | None:
    """Returns the median of those that are known; None if none is."""
    spread = Spread.of(values)
    return spread.median if spread else None


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
