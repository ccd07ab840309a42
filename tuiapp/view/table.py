"""Tables: a column is declared once; which columns fit, how a cell keeps to its column, and the order of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Generic, TypeVar

from tuiapp.trainers.state.text import MISSING, fit

GAP_CELLS = 2  # between two columns
GAP = " " * GAP_CELLS

T = TypeVar("T")
Row = TypeVar("Row", contravariant=True)


def or_missing(value: T | None, words: Callable[[T], str] = str) -> str:
    """Returns the words for a value, or the sign for a missing one."""
    return words(value) if value is not None else MISSING


@dataclass(frozen=True, slots=True)
class Figure(Generic[Row]):
    """What a column's cells say where they are results: numbers that have a mean, and differ from others by so much."""

    value: Callable[[Row], float | None]
    words: Callable[[float | None], str]
    is_relative: bool = False
    """Whether a difference is said in per cent."""
    deviation: Callable[[float], str] | None = None
    """Formats a standard deviation; None for as the values."""
    rises: bool | None = None
    """Whether more is better; None if the column is no result."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    title: str
    width: int
    """Cells of the column."""
    cell: Callable[[Row], str]
    rank: int = 0
    """Priority of the column: where not all fit, those with the lowest ranks are kept."""
    left: bool = False
    """Whether its text is at the left."""
    most: int = 0
    """The column's greatest width where its cells are longer than `width`."""
    widens: Callable[[Row], bool] | None = None
    """Whether a row's cell counts for that; None for all."""
    name: str = ""
    """What the command line calls it."""
    known: Callable[[Row], bool] = lambda row: True
    """Whether there is a value for a row."""
    key: Callable[[Row], Any] | None = None
    """What rows are sorted by; None of a row puts it last, in either direction."""
    falls: bool = False
    """Whether rows sorted by it are in descending order."""
    figure: Figure[Row] | None = None
    """The column's values, where they are results; None for a row that has another value there, such as a key's."""
    part: Callable[[Row], tuple[int, Column[Row]]] | None = None
    """Which part of the rows a row is in, and its column there, if they are sorted in parts; None: they are not."""
    together: Callable[[Sequence[Row]], str] | None = None
    """What it says of several rows in one; None: the range of their values, or of a figure what they came to."""
    comes: Callable[[Sequence[Row]], bool] | None = None
    """Whether rows have it without being asked; None: always."""

    def draw(self, row: Row) -> str:
        """Returns a row's cell in exactly the column's width."""
        return self.align(self.cell(row))

    def align(self, text: str) -> str:
        """Returns a text in exactly the column's width, as the title."""
        text = fit(text, self.width)
        return text if self.left else text.strip().rjust(self.width)


def fitting(columns: Iterable[Column[T]], width: int, rows: Sequence[T] = ()) -> list[Column[T]]:
    """Returns the columns that fit into `width` cells, those with a greatest width as wide as the rows' cells."""
    kept, used = dict[int, Column[T]](), 0
    for index, column in sorted(enumerate(columns), key=lambda numbered: numbered[1].rank):
        # All its cells may be needed for that: not done for a column that comes too late.
        fitted = sized(column, rows)
        if used + fitted.width > width:
            break
        used += fitted.width + GAP_CELLS
        kept[index] = fitted
    return [kept[index] for index in sorted(kept)]


def sized(column: Column[T], rows: Iterable[T]) -> Column[T]:
    """Returns a column as wide as its cells, where it has a greatest width."""
    if not column.most:
        return column
    counted = rows if column.widens is None else filter(column.widens, rows)
    longest = max((len(column.cell(row)) for row in counted), default=0)
    return replace(column, width=min(column.most, max(column.width, longest)))


def nonempty(columns: Iterable[Column[T]], rows: Sequence[T]) -> list[Column[T]]:
    """Returns the columns that have text for some row."""
    return [column for column in columns if any(column.cell(row) not in ("", MISSING) for row in rows)]


def in_order(rows: Iterable[T], column: Column[T], *, reverse: bool = False) -> list[T]:
    """Sorts rows by a column (stable), those without a value last."""
    assert column.key is not None
    keys = [(column.key(row), row) for row in rows]
    valued = sorted((pair for pair in keys if pair[0] is not None), key=itemgetter(0), reverse=column.falls != reverse)
    return [row for _, row in valued] + [row for key, row in keys if key is None]


def plain_table(columns: Iterable[Column[T]], rows: Sequence[T], width: int = sys.maxsize) -> list[str]:
    """Returns a heading and a line per row, of as many of the columns as fit, without blanks at the end."""
    kept = fitting(columns, width, rows)
    lines = [[column.align(column.title) for column in kept], *([column.draw(row) for column in kept] for row in rows)]
    return [GAP.join(line).rstrip() for line in lines]
