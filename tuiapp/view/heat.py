"""A heat map: a row a rank or device, or several of them, and a column a moment; its colour is the value.

In each cell stands a character of the cell's own colour, which is seen where there are no colours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuiapp.trainers.state.series import Floats
from tuiapp.trainers.state.signs import Condition
from tuiapp.view.devices.drawing import Line, Shade, Span, line

GLYPHS = ".:-=+*#%@"
"""Glyphs of a cell's level, from the least value to the greatest."""
LEVELS = len(GLYPHS)
EMPTY, BROKEN = -1, LEVELS
"""Levels of a cell without a value, and of one whose value was not finite."""
CELL_GLYPHS = f"{GLYPHS}✕ "
"""Glyphs of a cell by its level, those two included."""

LEAST_MEMBERS = 5
"""Ranks or devices from which on there are heat maps: fewer are lines."""

LABEL_CELLS = 7
APART = 3
"""Lines from which on a row leaves its last one free."""


class Member(NamedTuple):
    """A rank or a device."""

    label: str
    number: int
    node: int | None = None  # None on one machine
    condition: Condition | None = None  # of one that stands out
    chosen: bool = False


class Row(NamedTuple):
    label: str
    places: range
    """The indices of its members among all."""
    values: Floats
    """One a column: of several members the mean or, with one that stands out, that one's; inf if it was not finite."""
    culprit: Member | None = None
    """The one of them that stands out."""
    chosen: bool = False

    @property
    def condition(self) -> Condition | None:
        return self.culprit.condition if self.culprit else None


@dataclass(slots=True)
class Heat:
    rows: list[Row]
    members: Sequence[Member]
    called: str = "rank"
    format: Callable[[float], str] = "{:g}".format

    @property
    def is_whole(self) -> bool:
        """Whether there is a row for each."""
        return len(self.rows) == len(self.members)

    def words(self, value: float, *, log: bool = False) -> str:
        """Formats a row's value; "" for none."""
        if np.isnan(value):
            return ""
        return "not finite" if np.isinf(value) else self.format(10**value if log else value)


def heat_of(
    members: Sequence[Member],
    values: Floats,
    most: int,
    among: tuple[int, int] | None = None,
    called: str = "rank",
    format: Callable[[float], str] = "{:g}".format,
) -> Heat:
    """Returns a row for each member or, where these are more than `most`, for some of a node, or for several nodes.

    `values` is [members, columns]; `among` are the first and the last member shown, by default all.
    """
    first, last = among if among and among[1] < len(members) else (0, len(members) - 1)
    shown = range(first, last + 1)
    firsts = list(shown)
    if len(firsts) > most:
        nodes = [list(indices) for _, indices in groupby(shown, lambda index: members[index].node)]
        firsts = [index for indices in nodes for index in _thinned(indices, max(1, most // len(nodes)))]
        firsts = _thinned(firsts, max(1, most))
    rows = [_row(members, values, range(*ends), called) for ends in pairwise([*firsts, last + 1])]
    return Heat(rows, members, called, format)


def _thinned(indices: list[int], most: int) -> list[int]:
    """Returns at most so many of the indices, the first of parts that are about as long."""
    count = min(len(indices), most)
    return [indices[part * len(indices) // count] for part in range(count)]


def _row(members: Sequence[Member], values: Floats, places: range, called: str) -> Row:
    inside = [members[index] for index in places]
    first, last = inside[0], inside[-1]
    conditions = {index: condition for index in places if (condition := members[index].condition) is not None}
    culprit = max(conditions, key=lambda index: conditions[index].severity == "error", default=None)
    if len(inside) == 1:
        label = first.label
    elif first.node is not None and (first.node != last.node or len(inside) == _on_node(members, first.node)):
        label = f"n{first.node}" if first.node == last.node else f"n{first.node}–{last.node}"
    else:
        label = f"{first.number}–{last.number}"
        # Of GPUs each node has a first one.
        if first.node is not None and called == "GPU" and len(named := f"n{first.node} {label}") <= LABEL_CELLS:
            label = named
    return Row(
        label,
        places,
        mean(values[places.start : places.stop]) if culprit is None else values[culprit],
        None if culprit is None else members[culprit],
        any(member.chosen for member in inside),
    )


def _on_node(members: Sequence[Member], node: int) -> int:
    return sum(member.node == node for member in members)


def mean(values: Floats) -> Floats:
    """Returns the mean of each column of those values that are known."""
    is_value = ~np.isnan(values)
    means = np.full(values.shape[1], np.nan)
    np.divide(np.where(is_value, values, 0).sum(axis=0), is_value.sum(axis=0), out=means, where=is_value.any(axis=0))
    return means


def in_cells(values: Floats, breaks: Floats) -> Floats:
    """Returns values [rows, dots], two a cell, as [rows, cells]: between two values the first goes on.

    It is inf where `breaks` is above 0: a value was not finite.
    """
    values = np.where((breaks > 0) & np.isnan(values), np.inf, values)
    dots = np.where(np.isnan(values), -1, np.arange(values.shape[1]))
    last = dots.max(axis=1, keepdims=True)
    dots = np.maximum.accumulate(dots, axis=1)
    held = np.where(
        (dots < 0) | (np.arange(values.shape[1]) > last),
        np.nan,
        np.take_along_axis(values, np.maximum(dots, 0), axis=1),
    )
    return mean(held.reshape(len(held), -1, 2).transpose(2, 0, 1).reshape(2, -1)).reshape(len(held), -1)


def levels(values: Floats, low: float, high: float) -> NDArray[np.int16]:
    """Returns each value's level on a scale, the ends of which stand for all beyond them."""
    scaled = np.clip((values - low) / ((high - low) or 1.0) * LEVELS, 0, LEVELS - 1)
    filled = np.where(np.isnan(scaled), EMPTY, scaled)
    of_values: NDArray[np.int16] = np.where(np.isinf(values), BROKEN, np.floor(filled)).astype(np.int16)
    return of_values


def scale(heat: Heat, low: float, high: float, *, log: bool = False) -> Line:
    """Returns the colours from the least value to the greatest, with both in words."""
    beyond = any((row.values[np.isfinite(row.values)] > high).any() for row in heat.rows)
    first, last = heat.words(low, log=log), f"{'≥ ' if beyond else ''}{heat.words(high, log=log)}"
    return line(f"{first} ", *(Span(GLYPHS[level], Shade(level)) for level in range(LEVELS)), f" {last}")


def heat_lines(title: str, heat: Heat, ends: tuple[float, float], high: int = 1) -> list[Line]:
    """Returns a line with the title and the scale, and `high` lines a row; the newest value is at the right."""
    lines = [line(Span(title, "bold"), "  ", *scale(heat, *ends))]
    for row in heat.rows:
        mark = Span(row.condition.symbol, row.condition.severity) if row.condition else Span("│", "muted")
        spans = [
            Span(CELL_GLYPHS[level] * len(list(cells)), Shade(level) if 0 <= level < LEVELS else "muted")
            for level, cells in groupby(levels(row.values, *ends).tolist())
        ]
        label = f"{row.label:>{LABEL_CELLS}}"
        lines.append(line(Span(label, row.condition.severity if row.condition else ""), mark, *spans))
        blank = Span(f"{'':{LABEL_CELLS}}│", "muted")
        lines += [line(blank, *(spans if number < APART - 1 else ())) for number in range(1, high)]
    return lines
