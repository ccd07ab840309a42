"""A grid of charts: how many fit on a page, and which metrics are on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

MOST = 8  # charts on a page
MOST_ACROSS = 4
LEAST_WIDTH, LEAST_HEIGHT = 38, 10  # cells of a chart with its title and axes
SHAPE = 3.3  # preferred width of a chart over its height, in cells


def grid_size(
    count: int, width: int, height: int, least: tuple[int, int] = (LEAST_WIDTH, LEAST_HEIGHT)
) -> tuple[int, int]:
    """Returns the columns and rows for `count` charts in `width` by `height` cells, or for as many as fit.

    `least` are the cells across and down of a chart.
    """
    across, down = (max(1, min(MOST_ACROSS, room)) for room in (width // least[0], height // least[1]))
    sizes = [(c, r) for c in range(1, across + 1) for r in range(1, down + 1) if c * r <= MOST]
    wanted = min(max(1, count), max(c * r for c, r in sizes))
    enough = [(c, r) for c, r in sizes if c * r >= wanted]
    return min(
        enough,
        key=lambda size: (size[0] * size[1], abs(log(max(1, width) * size[1] / size[0] / max(1, height) / SHAPE))),
    )


@dataclass(slots=True)
class Pages:
    """Names on pages, one of them selected; the selection survives when names are added."""

    names: Sequence[str] = ()
    columns: int = 1
    rows: int = 1
    selected: str = ""

    @property
    def place(self) -> int:
        return self.names.index(self.selected) if self.selected in self.names else 0

    @property
    def page(self) -> int:
        """Counted from 0."""
        return self.place // self._size

    @property
    def count(self) -> int:
        return max(1, -(-len(self.names) // self._size))

    @property
    def visible(self) -> Sequence[str]:
        first = self.page * self._size
        return self.names[first : first + self._size]

    @property
    def _size(self) -> int:
        return self.columns * self.rows

    def show(self, names: Sequence[str], width: int, height: int) -> None:
        """Takes over names and the room for a page, in cells; selects the first if the selected one is gone."""
        self.names = names
        self.columns, self.rows = grid_size(len(names), width, height)
        if self.selected not in names:
            self.selected = names[0] if names else ""

    def move(self, by: int) -> None:
        """Selects the name so many places further, at most the last."""
        if self.names:
            self.selected = self.names[min(len(self.names) - 1, max(0, self.place + by))]

    def turn(self, by: int) -> None:
        """Selects the same place so many pages further."""
        if 0 <= self.page + by < self.count:
            self.move(by * self._size)
