"""The pictures and texts that a run has logged, step by step."""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.reactive import var
from textual.strip import Strip
from textual.widget import Widget

from tuiapp.library.in_thread import in_thread
from tuiapp.trainers.contract.events import Media
from tuiapp.trainers.state.media import shown_at, steps_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.pictures import draw
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.text_view import TextPanel


class Pictures(Widget):
    """Pictures and texts of a directory, read and drawn in a thread."""

    DEFAULT_CSS = """
    Pictures { height: auto; }
    """

    def __init__(self, directory: Path, *, named: bool = True, id: str | None = None) -> None:
        """Draws, if `named`, the name and step of each beside it."""
        super().__init__(id=id)
        self._directory, self._named = directory, named
        self._request: object = None
        self._strips: list[Strip] = []

    def show(self, items: Sequence[Media], width: int, height: int) -> None:
        """Draws them for a room in cells; in higher ones the panel scrolls."""
        if (request := ([(item.file, item.time) for item in items], width, height)) != self._request:
            self._request = request
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


class MediaPanel(TextPanel):
    step: var[int | None] = var(None, init=False)
    """The step up to which the last of each name is shown; None for the newest."""

    @dataclass
    class Paged(Message):
        """The user asks for earlier or later pictures."""

        by: int

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Pictures(self._directory)

    def watch_step(self) -> None:
        self._draw()

    def action_scroll_left(self) -> None:
        self.post_message(self.Paged(-1))

    def action_scroll_right(self) -> None:
        self.post_message(self.Paged(1))

    def page(self, by: int) -> None:
        """Goes to an earlier or later step at which something was logged; the last one is the newest also later."""
        steps = steps_of(self._state.media)
        here = len(steps) - 1 if self.step is None else bisect(steps, self.step) - 1
        there = min(len(steps) - 1, max(0, here + by))
        if there == here:
            self.notify("Nothing was logged after it." if by > 0 else "Nothing was logged before it.")
        else:
            self.step = None if there == len(steps) - 1 else steps[there]

    def lines(self, state: RunState, width: int) -> list[Content]:
        if not self.display or not state.media:
            return []
        steps, named = steps_of(state.media), state.media
        number = len(steps) if self.step is None else bisect(steps, self.step)
        text = f"step {steps[number - 1]:,}, {number:,} of {len(steps):,}" if number else "before the first"
        left_out = sum(kept.left_out for kept in named.values())
        missing = f"  {left_out:,} more were not kept" if left_out else ""
        room = self.outer_size - self.styles.gutter.totals
        self.query_one(Pictures).show(shown_at(named, self.step), width, max(4, room.height - 1))
        return [Content.assemble((text, "bold"), (f"  ← →{missing}", MUTED))]
