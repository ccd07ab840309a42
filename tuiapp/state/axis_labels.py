"""Tick labels of an axis: one unit, one number of decimals, a fixed width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import floor, log10
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["", "share", "%", "s"]  # unit of a metric: a share of 0 to 1 is shown in per cent
LABEL_CELLS = 7  # cells: constant, so that the curves do not move
LEAST_PLAIN = 1e-3  # an axis that ends below it shows powers of ten
MOST_DECIMALS = 12


def axis_labels(values: Sequence[float], unit: Unit = "") -> list[str]:
    """Returns the labels of a linear axis for its ticks, in order."""
    top = max(map(abs, values), default=0.0)
    scale, shown = _shown(unit, top)
    scaled = [value * scale for value in values]
    gap = min((after - before for before, after in pairwise(scaled)), default=top * scale / 10)
    units = (f" {shown}", shown, "") if shown else ("",)
    labels: list[str] = []
    for numbers in _forms(scaled, gap, top * scale):
        for ending in units:
            labels = [f"{number}{ending}" for number in numbers]
            if _fit(labels):
                return labels
    return labels


def log_labels(values: Iterable[float], unit: Unit = "") -> list[str]:
    """Returns the labels of a logarithmic axis, each in its own unit and number of decimals."""
    return [axis_labels([value], unit)[0] for value in values]


def _shown(unit: Unit, top: float) -> tuple[float, str]:
    if unit == "share":
        return 100.0, "%"
    if unit == "s":
        return (1.0, "s") if top >= 1 else (1e3, "ms") if top >= 1e-3 else (1e6, "µs")
    return 1.0, unit


def _forms(values: Sequence[float], gap: float, top: float) -> Iterator[list[str]]:
    """Yields ways to write numbers, the best first; only the last ones drop digits."""
    decimals = _decimals(values, gap)
    power = max(-300, floor(log10(top))) if top > 0 else 0
    ones = [value / 10.0**power for value in values]
    digits = _decimals(ones, gap / 10.0**power)
    plain = [f"{value:z,.{decimals}f}" for value in values]
    if top >= LEAST_PLAIN or not top:
        yield plain
    yield _with_power(ones, digits, power)
    yield plain
    yield [f"{value:z.{decimals}f}" for value in values]
    for fewer in range(min(digits, LABEL_CELLS), -1, -1):
        yield _with_power(ones, fewer, power)


def _with_power(ones: Sequence[float], digits: int, power: int) -> list[str]:
    return [f"{one:z.{digits}f}e{power}" if one else "0" for one in ones]


def _decimals(values: Sequence[float], gap: float) -> int:
    """Returns the fewest decimals that keep the labels visibly in place between two ticks."""
    for decimals in range(MOST_DECIMALS):
        if all(abs(round(value, decimals) - value) <= gap / 100 for value in values):
            return decimals
    return MOST_DECIMALS


def _fit(labels: Iterable[str]) -> bool:
    return all(len(label) <= LABEL_CELLS for label in labels)
