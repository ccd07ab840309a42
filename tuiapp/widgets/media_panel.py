"""The pictures and texts that a run has logged, step by step."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import var

from tuiapp.trainers.state.media import shown_at, steps_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.lines import Lines
from tuiapp.widgets.pictures import Pictures


class MediaPanel(VerticalScroll):
    DEFAULT_CSS = """
    MediaPanel {
        background: $background;
        padding: 0 0 0 1;
    }
    """

    step: var[int | None] = var(None, init=False)
    """What was the last of each name up to this step is shown; None for the newest."""

    @dataclass
    class Paged(Message):
        """The user asks for earlier or later ones."""

        by: int

    def __init__(self, directory: Path, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._directory = directory
        self._state = RunState()

    def compose(self) -> ComposeResult:
        yield Lines()
        yield Pictures(self._directory)

    def show(self, state: RunState) -> None:
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        self._draw()

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

    def _draw(self) -> None:
        if not self.display or not self._state.media:
            return
        steps, named = steps_of(self._state.media), self._state.media
        place = len(steps) if self.step is None else bisect(steps, self.step)
        words = f"step {steps[place - 1]:,}, {place:,} of {len(steps):,}" if place else "before the first"
        left_out = sum(kept.left_out for kept in named.values())
        more = f"  {left_out:,} more were not kept" if left_out else ""
        self.query_one(Lines).update([Content.assemble((words, "bold"), (f"  ← →{more}", MUTED))])
        room = self.outer_size - self.styles.gutter.totals
        self.query_one(Pictures).show(shown_at(named, self.step), max(24, room.width - 1), max(4, room.height - 1))
