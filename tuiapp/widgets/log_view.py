"""The log of all ranks or one: followed, scrolled back, or filtered by a text."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from msgspec import structs
from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Input

from tuiapp.trainers.state.run_state import LogEntry, RunState
from tuiapp.trainers.state.signs import SYMBOLS
from tuiapp.trainers.state.text import fit, format_clock, plural
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
        """The row of the match that was gone to; below 0 for none."""

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
        rows = [number for number, (_, text) in enumerate(self._rows) if wanted in text.casefold()] if wanted else []
        if not rows:
            return 0, 0
        at = self._found if self._found >= 0 else self.scroll_offset.y + (-1 if by > 0 else 1)
        beyond = [row for row in rows if (row > at if by > 0 else row < at)]
        self._found = (beyond or rows)[0 if by > 0 else -1]
        self.follow = False
        self.scroll_to(
            y=max(0, self._found - self.scrollable_content_region.height // 2),
            animate=False,
            immediate=True,
            force=True,
        )
        self.refresh()
        return rows.index(self._found) + 1, len(rows)

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
        match = style + self.get_component_rich_style("log--found")
        if number == self._found:
            match += Style(bold=True, underline=True)
        segments, start = [], 0
        while (index := folded.find(wanted, start)) >= 0:
            stop = index + len(wanted)
            segments += [Segment(text[start:index], style), Segment(text[index:stop], match)]
            start = stop
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


PLACEHOLDER = "show only lines with…  (enter, then n N: next, previous · escape: all lines)"

STREAMS: tuple[tuple[str, ...], ...] = (
    (),
    ("stdout",),
    ("stderr",),
    ("run", "event", "milestone", "checkpoint", "warning", "problem"),
)
"""What the stream key cycles through: all, stdout, stderr, the run's own messages."""


class LogView(Vertical):
    DEFAULT_CSS = """
    LogView {
        background: $background;
        padding: 0 1;

        LogRows {
            height: 1fr;
            background: $background;
            scrollbar-size-vertical: 1;
            scrollbar-gutter: stable;

            & > .log--prefix { color: $text-muted; }
            & > .log--stderr { color: $foreground; }
            & > .log--stdout { color: $foreground; }
            & > .log--run { color: $text-accent; }
            & > .log--event { color: $text-muted; }
            & > .log--milestone { color: $text-primary; text-style: bold; }
            & > .log--checkpoint { color: $text-success; }
            & > .log--warning { color: $text-warning; }
            & > .log--problem { color: $text-error; text-style: bold; }
            & > .log--found { text-style: reverse; }
        }
        Input { height: 1; padding: 0 1; display: none; }
        &.-searching Input { display: block; }
    }
    """

    rank: reactive[int | None] = reactive(None)
    pattern: reactive[str] = reactive("")
    """Shows only lines with this text, case-insensitive."""
    stream: reactive[tuple[str, ...]] = reactive(())

    def __init__(self) -> None:
        super().__init__()
        self._place = ""
        self._state = RunState()
        self._read_count = 0
        """Entries of the state's log that were looked at."""
        self._wanted_count = 0

    def compose(self) -> ComposeResult:
        yield LogRows()
        # Compact: one row has no room for both a focus border and text.
        yield Input(placeholder=PLACEHOLDER, compact=True, select_on_focus=True)

    def on_mount(self) -> None:
        self.watch(self.query_one(LogRows), "follow", self._show_status, init=True)

    @on(LogRows.Widened)
    def _wrap_anew(self) -> None:
        self._refill()

    @property
    def row_count(self) -> int:
        return int(self.query_one(LogRows).virtual_size.height)

    @property
    def follow(self) -> bool:
        return self.query_one(LogRows).follow

    def toggle_follow(self) -> None:
        rows = self.query_one(LogRows)
        rows.follow = not rows.follow

    def show(self, state: RunState) -> None:
        if state is not self._state:
            self._state = state
            self._refill()
            return
        fresh = self._wanted(state.log_since(self._read_count))
        self._read_count = state.log_count
        if fresh:
            self._wanted_count += len(fresh)
            self.query_one(LogRows).add(fresh)
        self._show_status()

    def open_search(self) -> None:
        self.add_class("-searching")
        self.query_one(Input).focus()

    def next_stream(self) -> None:
        self.stream = STREAMS[(STREAMS.index(self.stream) + 1) % len(STREAMS)]

    def find(self, by: int) -> None:
        """Goes to the next (1) or previous (-1) match among all lines."""
        rows = self.query_one(LogRows)
        if self.pattern:
            rows.needle = self.pattern
            with self.prevent(Input.Changed):
                self.query_one(Input).value = ""
            self.remove_class("-searching")
            self.pattern = ""
        if not rows.needle:
            self.open_search()
            return
        number, count = rows.find(by)
        self._place = f"“{rows.needle}” {number} of {count} · n N" if count else f"“{rows.needle}” was not found"
        self._show_status()

    def close_search(self) -> bool:
        """Shows all lines again; returns whether there was a search."""
        if not self.has_class("-searching") and not self._place:
            return False
        self.remove_class("-searching")
        self.query_one(Input).value = ""
        self.pattern = self._place = self.query_one(LogRows).needle = ""
        self.query_one(LogRows).focus()
        return True

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        event.stop()
        self.pattern = event.value

    @on(Input.Submitted)
    def _leave_search(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(LogRows).focus()
        self.set_class(bool(event.value), "-searching")

    def _wanted(self, entries: list[LogEntry]) -> list[LogEntry]:
        rank, stream, pattern = self.rank, self.stream, self.pattern.casefold()
        if rank is not None:
            entries = [entry for entry in entries if entry.rank in (rank, None)]
        if stream:
            entries = [entry for entry in entries if entry.stream in stream]
        return [entry for entry in entries if pattern in entry.text.casefold()] if pattern else entries

    def _refill(self) -> None:
        if not self.is_mounted:
            return
        wanted = self._wanted(list(self._state.log))
        self._wanted_count = len(wanted)
        self.query_one(LogRows).refill(wanted)
        self._read_count = self._state.log_count
        self._show_status()

    watch_rank = watch_stream = watch_pattern = _refill

    def _show_status(self) -> None:
        if not self.is_mounted:
            return
        who = "all ranks" if self.rank is None else f"rank {self.rank} and the run"
        how = "following" if self.follow else "scrolled back · f: follow"
        lines = plural(len(self._state.log), "line")
        # Some counted entries may have been dropped by now.
        some = min(self._wanted_count, len(self._state.log))
        left_out = self._state.log_count - len(self._state.log)
        parts = [
            who,
            ("the run's own messages" if "run" in self.stream else f"{self.stream[0]} only") if self.stream else "",
            how,
            self._place,
            f"only lines with “{self.pattern}”" if self.pattern else "",
            f"{some:,} of {lines}" if self.rank is not None or self.stream or self.pattern else lines,
            "esc: all" if self.pattern else "",
        ]
        if left_out > 0:
            parts.append(f"{left_out:,} earlier ones in ranks/*/")
        text = Content(" · ".join(part for part in parts if part))
        if not text.is_same(self._border_subtitle or Content()):
            # Setting `border_subtitle` repaints the whole log.
            self._border_subtitle = text
            width, height = self.outer_size
            self.refresh(Region(0, height - 1, width, 1).translate(-self.content_offset))
