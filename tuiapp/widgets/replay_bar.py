"""The bar that marks a replay and shows its position."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tuiapp.trainers.state.text import format_duration
from tuiapp.widgets.colors import MUTED


class ReplayBar(Widget):
    DEFAULT_CSS = """
    ReplayBar {
        height: 1;
        padding: 0 1;
        background: $panel;
        display: none;
    }
    """

    @dataclass
    class Sought(Message):
        """The user clicked a position."""

        fraction: float
        """From 0, the start, to 1, the end."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._mark, self._times, self._fraction = "", "", 0.0
        self._line = (0, 0)
        """Start and length of the progress line, in cells."""

    def show(self, *, speed: float, paused: bool, position: float, duration: float) -> None:
        mark = f"{'❚❚' if paused else '▶ '} REPLAY ×{speed:g}"
        times = f"{format_duration(position)} of {format_duration(duration)}"
        room = max(1, 2 * self.size.width)
        fraction = round(room * position / duration) / room if duration > 0 else 0.0
        if (mark, times, fraction) != (self._mark, self._times, self._fraction):
            self._mark, self._times, self._fraction = mark, times, fraction
            self.refresh()

    def render(self) -> Content:
        mark = Content.styled(f" {self._mark} ", "bold reverse")
        space = "pause" if "▶" in self._mark else "play"
        keys = f" · space {space} · , . seek · < > speed" if self.size.width >= 110 else ""
        end = Content.assemble(f" {self._times}", (keys, MUTED))
        room = max(0, self.size.width - mark.cell_length - 1 - end.cell_length)
        self._line = (mark.cell_length + 1, room)
        full, half = divmod(round(min(1.0, self._fraction) * room * 2), 2)
        done = "━" * full + ("╸" if half else "")
        line = Content.assemble((done, "$primary"), ("─" * (room - len(done)), "$foreground 30%"))
        return Content.assemble(mark, " ", line, end)

    def on_click(self, event: events.Click) -> None:
        start, length = self._line
        offset = event.get_content_offset_capture(self)
        if length and start <= offset.x < start + length:
            self.post_message(self.Sought((offset.x - start) / length))
