"""The rows of the log: wrapped to the width, only visible ones rendered."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from msgspec import structs
from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from tuiapp.trainers.state.run_state import LogEntry
from tuiapp.trainers.state.signs import SYMBOLS
from tuiapp.trainers.state.text import fit, format_clock
from tuiapp.widgets.colors import mark_selection

MAX_ROWS = 20_000
"""Most rows kept for the screen; long lines take several."""

PREFIX_CELLS = 18

SIGNS = {"milestone": "◆", "checkpoint": "↓", "warning": SYMBOLS["warning"], "problem": SYMBOLS["error"]}


_Row: TypeAlias = tuple[LogEntry, str]
"""A log entry and the part of its text in this row."""


class LogRows(ScrollView, can_focus=True):
    DEFAULT_CSS = """
    LogRows { overflow-x: hidden; }
    """

    follow: reactive[bool] = reactive(True)
    needle: reactive[str] = reactive("")
    """Text to highlight, case-insensitive."""
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log--prefix",
        "log--stdout",
        "log--stderr",
        "log--run",
        "log--event",
        "log--milestone",
        "log--checkpoint",
        "log--warning",
        "log--problem",
        "log--found",
    }

    class Widened(Message):
        """The width differs from the one that lines are wrapped for."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[_Row] = []
        self._width = 0
        """Width of a row, including its prefix."""
        self._found = -1

    def add(self, entries: list[LogEntry]) -> None:
        width = max(20, self._width - PREFIX_CELLS)
        for entry in entries:
            entry = self._joined(entry)
            text = entry.text
            if len(text) <= width and text.isascii():
                self._rows.append((entry, text))
            else:
                self._rows += [(entry, part) for part in _wrap(text, width)]
        surplus = len(self._rows) - MAX_ROWS
        if surplus > 0:
            del self._rows[:surplus]
            self._found -= surplus
        size = Size(self.scrollable_content_region.width, len(self._rows))
        # Not by assignment: that lays out the whole screen, at each line logged.
        self.set_reactive(LogRows.virtual_size, size)
        self._scroll_update(size)
        if self.follow:
            self._go_to_end()
        elif surplus > 0:
            self.scroll_to(y=max(0, self.scroll_y - surplus), animate=False, immediate=True, force=True)
        self.refresh()

    def _joined(self, entry: LogEntry) -> LogEntry:
        """Returns an entry, or for the checkpoint of an evaluation's step both in one, in place of the last one."""
        last = self._rows[-1][0] if self._rows else None
        if (
            last is None
            or entry.stream != "checkpoint"
            or last.stream != "milestone"
            or not 0 < last.step == entry.step
        ):
            return entry
        while self._rows and self._rows[-1][0] is last:
            self._rows.pop()
        _, _, how = entry.text.partition(" · ")
        return structs.replace(last, text=f"{last.text}   ↓ saved · {how}", step=0)

    def texts(self) -> list[str]:
        return [text for _, text in self._rows]

    def refill(self, entries: list[LogEntry]) -> None:
        self._rows.clear()
        self._found = -1
        self._width = self.scrollable_content_region.width
        self.add(entries)

    def find(self, by: int) -> tuple[int, int]:
        """Goes to the next (1) or previous (-1) match and returns its 1-based number and the count; zeros for none."""
        wanted = self.needle.casefold()
        places = [number for number, (_, text) in enumerate(self._rows) if wanted in text.casefold()] if wanted else []
        if not places:
            return 0, 0
        at = self._found if self._found >= 0 else self.scroll_offset.y + (-1 if by > 0 else 1)
        beyond = [place for place in places if (place > at if by > 0 else place < at)]
        self._found = (beyond or places)[0 if by > 0 else -1]
        self.follow = False
        self.scroll_to(
            y=max(0, self._found - self.scrollable_content_region.height // 2),
            animate=False,
            immediate=True,
            force=True,
        )
        self.refresh()
        return places.index(self._found) + 1, len(places)

    def on_resize(self) -> None:
        if self.scrollable_content_region.width != self._width:
            self.post_message(self.Widened())
        elif self.follow:
            self._go_to_end()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Stops following when the user scrolls back, resumes at the end."""
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self.follow = True
        elif new_value < old_value:
            self.follow = False

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

    def watch_follow(self, follow: bool) -> None:
        if follow:
            self.scroll_end(animate=False, force=True, x_axis=False)

    def _go_to_end(self) -> None:
        """Scrolls at once and by force: Textual learns only at its next layout that there is more to scroll."""
        self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)

    def render_line(self, y: int) -> Strip:
        number = self.scroll_offset.y + y
        width = self.scrollable_content_region.width
        if number >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        entry, text = self._rows[number]
        base = self.rich_style
        styles = (self.get_component_rich_style("log--prefix"), self.get_component_rich_style(f"log--{entry.stream}"))
        segments = [Segment(self._prefix(number), base + styles[0]), *self._marked(text, base + styles[1], number)]
        return mark_selection(self, Strip(segments).adjust_cell_length(width, base), number)

    def _prefix(self, number: int) -> str:
        entry = self._rows[number][0]
        if number and self._rows[number - 1][0] is entry:
            return " " * PREFIX_CELLS
        return f"{format_clock(entry.time)} {fit(_who(entry), 7)}{SIGNS.get(entry.stream, ' ')} "

    def _marked(self, text: str, style: Style, number: int) -> list[Segment]:
        wanted, folded = self.needle.casefold(), text.casefold()
        if not wanted or len(folded) != len(text) or wanted not in folded:
            return [Segment(text, style)]
        found = style + self.get_component_rich_style("log--found")
        if number == self._found:
            found += Style(bold=True, underline=True)
        segments, start = [], 0
        while (place := folded.find(wanted, start)) >= 0:
            segments += [Segment(text[start:place], style), Segment(text[place : place + len(wanted)], found)]
            start = place + len(wanted)
        return [segment for segment in [*segments, Segment(text[start:], style)] if segment.text]

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = [self._prefix(number) + text for number, (_, text) in enumerate(self._rows)]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()


def _who(entry: LogEntry) -> str:
    """Names whose line it is: "rank 3"; on several nodes "n1 r9", at most "n63r511"."""
    if entry.rank is None:
        return f"node {entry.node}" if entry.node else "run"
    if entry.node is None:
        return f"rank {entry.rank}"
    between = " " if entry.rank < 100 or entry.node < 10 else ""
    return f"n{entry.node}{between}r{entry.rank}"


def _wrap(text: str, width: int) -> list[str]:
    """Splits a line into rows, after a space where a row's last third has one."""
    parts, start = [], 0
    while len(text) - start > width or (not text.isascii() and cell_len(text[start:]) > width):
        row = text[start : start + width]
        # A character may be two cells wide.
        room = len(row) if row.isascii() else len(chop_cells(row, width)[0])
        stop = text.rfind(" ", start + 2 * room // 3, start + room) + 1 or start + room
        parts.append(text[start:stop])
        start = stop
    return [*parts, text[start:]]
