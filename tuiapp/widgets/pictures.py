"""Pictures and texts, in half blocks and wrapped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from textual import work
from textual.strip import Strip
from textual.widget import Widget

from tuiapp.library.in_thread import in_thread
from tuiapp.trainers.contract.events import Media
from tuiapp.view.pictures import draw


class Pictures(Widget):
    """Pictures and texts of a directory, read and drawn in a thread."""

    DEFAULT_CSS = """
    Pictures { height: auto; }
    """

    def __init__(self, directory: Path, *, named: bool = True, id: str | None = None) -> None:
        """`named`: with the name and step of each."""
        super().__init__(id=id)
        self._directory, self._named = directory, named
        self._asked: object = None
        self._strips: list[Strip] = []

    def show(self, items: Sequence[Media], width: int, height: int) -> None:
        """Draws them for a room in cells; in higher ones the panel scrolls."""
        if (asked := ([(one.file, one.time) for one in items], width, height)) != self._asked:
            self._asked = asked
            self._draw(items, width, height)

    @work(exclusive=True)
    async def _draw(self, items: Sequence[Media], width: int, height: int) -> None:
        rows = await asyncio.wrap_future(in_thread(draw, self._directory, items, width, height, named=self._named))
        self._strips = [Strip(row) for row in rows]
        self.styles.height = len(rows)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        strip = self._strips[y] if y < len(self._strips) else Strip.blank(0)
        return strip.adjust_cell_length(self.size.width).apply_style(self.rich_style)
