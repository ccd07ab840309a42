"""The known metrics: their labels, units and how they are drawn; others are shown under their journal names.

It also says which of a run's metrics are shown, and in which order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    EXAMPLES,
    GRADIENT_NORM,
    HELD_OUT,
    LEARNING_RATE,
    LOSS,
    RATE,
    SCALE,
    SKIPPED,
    STEP_TIME,
    SYNC_WAIT,
    TEST_ACCURACY,
    TEST_EXAMPLES,
    TEST_LOSS,
    TEST_SECONDS,
    accuracy_percent,
    group_of,
    held_out_of,
    loss_of,
)
from tuiapp.trainers.state.text import format_metric, format_percent, format_rate, format_seconds, sanitize

Unit: TypeAlias = Literal["", "share", "%", "s"]  # unit of a metric: a share of 0 to 1 is shown in per cent

UTILIZATION = "gpu/utilization"  # sampled per GPU: the only curves that no rank reports
MAX_LABEL = 60
REMEMBERED = 16_384  # metrics whose names are taken apart once: lists of thousands are searched at each key

_RISING = re.compile(
    r"(?:^|[/_.@ -])(?:acc|accuracy|auc|auroc|bleu|dice|f1|iou|map|miou|precision|psnr|recall|reward|rouge|rouge[12l]"
    r"|score|ssim|top1|top5)(?:$|[/_.@ -])"
)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str  # as in the journal
    label: str
    format: Callable[[float | None], str] = format_metric  # at most nine characters
    unit: Unit = ""

    @property
    def group(self) -> str:
        return _group(self.name)

    @property
    def held_out(self) -> bool:
        """Whether it is measured at evaluations: its values are marked, not smoothed."""
        return group_of(self.name) in HELD_OUT

    @property
    def rises(self) -> bool:
        """Whether more is better, as a word of its name says ("eval/f1", "top1_acc"); of others, as of losses, less."""
        return bool(_RISING.search(self.name.lower()))


@lru_cache(REMEMBERED)
def _group(name: str) -> str:
    return sanitize(group_of(name), MAX_LABEL)


def _percent(value: float | None) -> str:
    return format_percent(value / 100 if value is not None else None)


def format_accuracy(value: float | None, decimals: int = 1) -> str:
    """Formats an accuracy, as a share or in per cent: "97.5 %"."""
    return format_percent(accuracy_percent(value) / 100 if value is not None else None, decimals)


def _rate(value: float | None) -> str:
    return f"{value:.1e}" if value is not None and 0 < abs(value) < 0.01 else format_rate(value)


def _learning_rate(value: float | None) -> str:
    return f"{value:.3g}" if value is not None else format_metric(None)


KNOWN: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(LOSS, "loss"),
        Metric(TEST_ACCURACY, "accuracy", format_accuracy, "share"),
        Metric(TEST_LOSS, "test loss"),
        Metric(RATE, "examples/s", _rate),
        Metric(STEP_TIME, "step time", format_seconds, "s"),
        Metric(DATA_WAIT, "data wait", format_seconds, "s"),
        Metric(SYNC_WAIT, "wait for other ranks", format_seconds, "s"),
        Metric(LEARNING_RATE, "learning rate", _learning_rate),
        Metric(GRADIENT_NORM, "gradient norm"),
        Metric(UTILIZATION, "utilization", _percent, "%"),
        Metric(EXAMPLES, "examples", _rate),
        Metric(TEST_SECONDS, "evaluation time", format_seconds, "s"),
        Metric(TEST_EXAMPLES, "test examples", _rate),
        Metric(SCALE, "loss scale"),
        Metric(SKIPPED, "skipped steps"),
    )
}
"""Metrics by name, in the order in which they are offered."""


@lru_cache(REMEMBERED)
def metric(name: str) -> Metric:
    """Returns a metric by its name in the journal, known or not."""
    return KNOWN.get(name) or Metric(name, sanitize(name, MAX_LABEL))


def is_further(name: str) -> bool:
    """Returns whether it is a figure of an evaluation beside those that every built-in trainer reports."""
    return group_of(name) in HELD_OUT and name not in KNOWN


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


@lru_cache(REMEMBERED)
def _by_group(name: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    return _natural(group_of(name)), _natural(name)


def ordered(names: Iterable[str]) -> list[str]:
    """Returns the known metrics in their order, the loss first, then the others by group and name, 2 before 10."""
    names = dict.fromkeys(names)
    known = [name for name in KNOWN if name in names]
    return known + sorted((name for name in names if name not in KNOWN), key=_by_group)


def grouped(names: Iterable[str], search: str = "") -> dict[str, list[str]]:
    """Returns the metrics by group, those without one first; only those in which all words of `search` are found."""
    terms = search.lower().split()
    groups: dict[str, list[str]] = {"": []}
    for name in ordered(names):
        shown = metric(name)
        text = f"{name} {shown.label}".lower() if terms else ""
        if all(word in text for word in terms):
            groups.setdefault(shown.group, []).append(name)
    return groups


def first_choice(names: Iterable[str]) -> str:
    """Returns the metric that is shown first: a loss, or else the first one reported that is no figure of the steps."""
    reported = list(names)
    unknown = (name for name in reported if name not in KNOWN)
    return loss_of(reported) or next(unknown, None) or next(iter(reported), LOSS)


def second_choice(names: Iterable[str], first: str) -> str:
    """Returns the metric that is shown beside the first: the accuracy, or else one of an evaluation, or the next."""
    candidates = [name for name in names if name != first]
    held_out = (name for name in candidates if metric(name).held_out and name not in KNOWN)
    unknown = (name for name in candidates if name not in KNOWN)
    usual = LOSS if first == TEST_ACCURACY else TEST_ACCURACY
    return usual if usual in candidates else next(held_out, None) or next(unknown, None) or usual


_BOOKKEEPING = re.compile(r"(?:^|/)(?:epoch|runtime|(?:samples|steps)_per_second)$")


def is_bookkeeping(name: str) -> bool:
    """Returns whether trainers log it beside what is learned: "epoch", "eval/runtime"."""
    return bool(_BOOKKEEPING.search(name))


ASIDE = (GRADIENT_NORM, RATE, LEARNING_RATE, UTILIZATION, STEP_TIME, DATA_WAIT, SYNC_WAIT)
"""Known metrics that say how a run goes, not what it learns: offered last, and of the known ones no others."""

PER_RANK = (RATE, UTILIZATION, STEP_TIME, DATA_WAIT, SYNC_WAIT)
"""The metrics by which ranks and devices are told from each other."""

ENOUGH = 6
"""Charts of a run."""


def of_interest(names: Collection[str], first: str, wanted: Iterable[str], constant: Collection[str] = ()) -> list[str]:
    """Returns the metrics that charts are of: the first, those wanted, evaluations, others, and how the run goes.

    A training metric's chart has its evaluation, too, which needs none of its own. What is `constant`, or a trainer's
    bookkeeping, needs none either; how the run goes only fills up `ENOUGH` charts.
    """
    within = {beside: name for name in names if (beside := held_out_of(name, names))}
    learned = ordered(name for name in names if name not in KNOWN or name == TEST_ACCURACY)
    evaluated = [name for name in learned if metric(name).held_out or name in within.values()]
    candidates = [name for name in (*evaluated, *learned) if name not in constant and not is_bookkeeping(name)]
    shown = list(dict.fromkeys(within.get(name, name) for name in (first, *wanted, *candidates)))
    aside = [name for name in ASIDE if name in names and name not in constant and name not in shown]
    return [*shown, *aside[: max(0, ENOUGH - len(shown))]]


def by_importance(names: Iterable[str], objective: str) -> list[str]:
    """Returns the metrics in their order, but the objective first, then evaluations, and how the run goes last."""

    def place(name: str) -> int:
        if name == objective:
            return 0
        if name in KNOWN:
            return {TEST_ACCURACY: 1, TEST_LOSS: 1, LOSS: 2}.get(name, 4)
        if is_bookkeeping(name):
            return 5
        return 1 if metric(name).held_out else 2 if name.endswith(LOSS) else 3

    return sorted(names, key=place)
