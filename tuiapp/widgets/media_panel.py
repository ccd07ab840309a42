"""The pictures and texts that a run has logged, step by step."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from pathlib import Path

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.reactive import var

from tuiapp.trainers.state.media import shown_at, steps_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.pictures import Pictures
from tuiapp.widgets.text_view import TextPanel


class MediaPanel(TextPanel):
    step: var[int | None] = var(None, init=False)
    """What was the last of each name up to this step is shown; None for the newest."""

    @dataclass
    class Paged(Message):
        """The user asks for earlier or later ones."""

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
        place = len(steps) if self.step is None else bisect(steps, self.step)
        words = f"step {steps[place - 1]:,}, {place:,} of {len(steps):,}" if place else "before the first"
        left_out = sum(kept.left_out for kept in named.values())
        more = f"  {left_out:,} more were not kept" if left_out else ""
        room = self.outer_size - self.styles.gutter.totals
        self.query_one(Pictures).show(shown_at(named, self.step), width, max(4, room.height - 1))
        return [Content.assemble((words, "bold"), (f"  ← →{more}", MUTED))]
