"""The log of all ranks or one: followed, scrolled back, or filtered by a text."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.reactive import reactive
from textual.widgets import Input

from tuiapp.trainers.state.run_state import LogEntry, RunState
from tuiapp.trainers.state.text import plural
from tuiapp.widgets.log_rows import LogRows

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
        self._seen = 0
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
        fresh = self._wanted(state.log_since(self._seen))
        self._seen = state.log_count
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

    def watch_rank(self) -> None:
        self._refill()

    def watch_stream(self) -> None:
        self._refill()

    def watch_pattern(self) -> None:
        self._refill()

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
        self._seen = self._state.log_count
        self._show_status()

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
        words = Content(" · ".join(part for part in parts if part))
        if not words.is_same(self._border_subtitle or Content()):
            # Setting `border_subtitle` repaints the whole log.
            self._border_subtitle = words
            width, height = self.outer_size
            self.refresh(Region(0, height - 1, width, 1).translate(-self.content_offset))
