"""What the ranks and the run wrote: all of them or one, following or scrolled back, or only lines with a word."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Input, Static

from tuiapp.state.run_facts import LogEntry, RunFacts
from tuiapp.state.text import fit, format_clock

MAX_ROWS = 20_000
"""Rows kept on the screen's side: long lines take several."""

PREFIX_CELLS = 18


class _Row:
    """One row of the screen: a line of the log, or a part of one."""

    __slots__ = ("prefix", "stream", "text")

    def __init__(self, prefix: str, stream: str, text: str) -> None:
        self.prefix, self.stream, self.text = prefix, stream, text


class _Rows(ScrollView, can_focus=True):
    """The rows, wrapped to the width; only those in sight are rendered."""

    follow: reactive[bool] = reactive(True)

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log--prefix",
        "log--stdout",
        "log--stderr",
        "log--run",
        "log--event",
        "log--problem",
    }

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[_Row] = []
        self._dropped = 0

    def add(self, entries: list[LogEntry]) -> None:
        """Append lines of the log."""
        width = max(20, self.scrollable_content_region.width - PREFIX_CELLS)
        for entry in entries:
            who = "run" if entry.rank is None else f"rank {entry.rank}"
            prefix = f"{format_clock(entry.time)} {fit(who, 7)}  "
            for part in _wrap(entry.text, width):
                self._rows.append(_Row(prefix, entry.stream, part))
                prefix = " " * PREFIX_CELLS
        surplus = len(self._rows) - MAX_ROWS
        if surplus > 0:
            del self._rows[:surplus]
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._rows))
        if self.follow:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
        elif surplus > 0:
            self.scroll_to(y=max(0, self.scroll_y - surplus), animate=False, immediate=True)
        self.refresh()

    def texts(self) -> list[str]:
        """The rows' texts, without what stands before them."""
        return [row.text for row in self._rows]

    def clear(self) -> None:
        """Forget all rows."""
        self._rows.clear()
        self.virtual_size = Size(0, 0)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Stop following when the user scrolls back, begin again at the end."""
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self.follow = True
        elif new_value < old_value:
            self.follow = False

    def watch_follow(self, follow: bool) -> None:
        """Go to the end."""
        if follow:
            self.scroll_end(animate=False, x_axis=False)

    def render_line(self, y: int) -> Strip:
        number = self.scroll_offset.y + y
        width = self.scrollable_content_region.width
        if number >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        row = self._rows[number]
        base = self.rich_style
        styles = (self.get_component_rich_style("log--prefix"), self.get_component_rich_style(f"log--{row.stream}"))
        segments = [Segment(row.prefix, base + styles[0]), Segment(row.text, base + styles[1])]
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(number)) is not None:
            chosen = self.screen.get_component_rich_style("screen--selection")
            segments = _select(segments, span, chosen)
        return Strip(segments).adjust_cell_length(width, base).apply_offsets(0, number)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text under the selection, as it stands on the screen."""
        return selection.extract("\n".join(row.prefix + row.text for row in self._rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show it."""
        self.refresh()


class LogView(Vertical):
    """The log with its search line."""

    DEFAULT_CSS = """
    LogView {
        background: $surface;
        padding: 0 1;

        _Rows {
            height: 1fr;
            background: $surface;
            overflow-x: hidden;
            scrollbar-size-vertical: 1;
            scrollbar-gutter: stable;

            & > .log--prefix { color: $text-muted; }
            & > .log--stderr { color: $foreground; }
            & > .log--stdout { color: $foreground; }
            & > .log--run { color: $text-accent; }
            & > .log--event { color: $text-primary; }
            & > .log--problem { color: $text-error; text-style: bold; }
        }
        #status { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        Input { height: 1; padding: 0 1; display: none; }
        &.-searching Input { display: block; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close_search", "Close search", show=False)]

    rank: reactive[int | None] = reactive(None)
    """The one rank whose lines are shown; None for all."""

    pattern: reactive[str] = reactive("")
    """Only lines with this text are shown, whatever their case."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = RunFacts()
        self._seen = 0

    def compose(self) -> ComposeResult:  # noqa: D102
        yield Static(id="status", markup=False)
        yield _Rows()
        # Compact: in one row there is no room for the border that the focus draws, and for what is typed.
        yield Input(placeholder="show only lines with…  (escape: all lines)", compact=True, select_on_focus=True)

    def on_mount(self) -> None:
        """Say how it follows."""
        self.watch(self.query_one(_Rows), "follow", self._show_status, init=True)

    def on_resize(self) -> None:
        """Wrap anew."""
        self.call_after_refresh(self._refill)

    @property
    def follow(self) -> bool:
        """Whether new lines are scrolled to."""
        return self.query_one(_Rows).follow

    def toggle_follow(self) -> None:
        """Follow, or stand still."""
        rows = self.query_one(_Rows)
        rows.follow = not rows.follow

    def show(self, state: RunFacts) -> None:
        """Append what has come since the last time."""
        self._state = state
        fresh = [entry for entry in state.log_since(self._seen) if self._wanted(entry)]
        self._seen = state.log_count
        if fresh:
            self.query_one(_Rows).add(fresh)
        self._show_status()

    def shown_lines(self) -> list[str]:
        """The lines on show, wrapped as they are, without time and rank."""
        return self.query_one(_Rows).texts()

    def open_search(self) -> None:
        """Let the user type what to look for."""
        self.add_class("-searching")
        self.query_one(Input).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape is the screen's unless there is a search to close."""
        return self.has_class("-searching") if action == "close_search" else True

    def action_close_search(self) -> None:
        """Show all lines again."""
        self.remove_class("-searching")
        self.query_one(Input).value = ""
        self.pattern = ""
        self.query_one(_Rows).focus()

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        event.stop()
        self.pattern = event.value

    @on(Input.Submitted)
    def _leave_search(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(_Rows).focus()
        self.set_class(bool(event.value), "-searching")

    def watch_rank(self) -> None:
        """Show the lines of the chosen rank."""
        self._refill()

    def watch_pattern(self) -> None:
        """Show the lines with the text."""
        self._refill()

    def _wanted(self, entry: LogEntry) -> bool:
        if self.rank is not None and entry.rank not in (self.rank, None):
            return False
        return not self.pattern or self.pattern.casefold() in entry.text.casefold()

    def _refill(self) -> None:
        if not self.is_mounted:
            return
        rows = self.query_one(_Rows)
        rows.clear()
        rows.add([entry for entry in self._state.log if self._wanted(entry)])
        self._seen = self._state.log_count
        self._show_status()

    def _show_status(self) -> None:
        if not self.is_mounted:
            return
        who = "all ranks" if self.rank is None else f"rank {self.rank} and the run"
        how = "following" if self.follow else "scrolled back · f: follow"
        left_out = self._state.log_count - len(self._state.log)
        parts = [
            who,
            how,
            f"only lines with “{self.pattern}”" if self.pattern else "",
            f"{len(self._state.log):,} lines",
        ]
        if left_out > 0:
            parts.append(f"{left_out:,} earlier ones in ranks/*/")
        self.query_one("#status", Static).update(" · ".join(part for part in parts if part), layout=False)


def _wrap(text: str, width: int) -> list[str]:
    if text.isascii():
        return [text[start : start + width] for start in range(0, len(text), width)] or [""]
    return chop_cells(text, width) if cell_len(text) > width else [text]


def _select(segments: list[Segment], span: tuple[int, int], style: Style) -> list[Segment]:
    """Style the characters from the span's start to its end; -1 is the line's end."""
    start, end = span
    chosen: list[Segment] = []
    position = 0
    for text, own, _ in segments:
        stop = position + len(text)
        low = min(max(start, position), stop) - position
        high = len(text) if end == -1 else min(max(end, position), stop) - position
        high = max(low, high)
        pieces = ((text[:low], own), (text[low:high], (own or Style()) + style), (text[high:], own))
        chosen += [Segment(piece, piece_style) for piece, piece_style in pieces if piece]
        position = stop
    return chosen
