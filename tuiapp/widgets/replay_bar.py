"""Says that one sees a replay, and where in it."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tuiapp.state.text import format_duration
from tuiapp.widgets.colors import MUTED


class ReplayBar(Widget):
    """The mark of a replay, its speed, and its place in the run; a click goes to that place."""

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
        """A place was clicked."""

        fraction: float
        """From 0, the start, to 1, the end."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._mark, self._times, self._fraction = "", "", 0.0
        self._line = (0, 0)
        """Where the line of the progress begins, and its length, in cells."""

    def show(self, *, speed: float, paused: bool, position: float, duration: float) -> None:
        """Show where a replay stands.

        Args:
            speed: Seconds of the run in one.
            paused: Whether it stands still.
            position: Seconds of the run that have passed.
            duration: Seconds from its first event to its last.
        """
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
        """Ask for the place under the pointer."""
        start, length = self._line
        offset = event.get_content_offset_capture(self)
        if length and start <= offset.x < start + length:
            self.post_message(self.Sought((offset.x - start) / length))
