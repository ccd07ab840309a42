"""What the ranks and the run wrote: all of them or one, following or scrolled back, or only lines with a word."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.reactive import reactive
from textual.widgets import Input, Static

from tuiapp.state.run_facts import LogEntry, RunFacts
from tuiapp.state.text import plural
from tuiapp.widgets.log_rows import LogRows

PLACEHOLDER = "show only lines with…  (enter, then n N: one after the other · escape: all lines)"

STREAMS: tuple[tuple[str, ...], ...] = ((), ("stdout",), ("stderr",), ("run", "event", "problem"))
"""What the key for the streams goes through: all, one of the ranks' two, the run's own words."""


class LogView(Vertical):
    """The log with its search line."""

    DEFAULT_CSS = """
    LogView {
        background: $background;
        padding: 0 1;

        LogRows {
            height: 1fr;
            background: $background;
            overflow-x: hidden;
            scrollbar-size-vertical: 1;
            scrollbar-gutter: stable;

            & > .log--prefix { color: $text-muted; }
            & > .log--stderr { color: $foreground; }
            & > .log--stdout { color: $foreground; }
            & > .log--run { color: $text-accent; }
            & > .log--event { color: $text-primary; }
            & > .log--problem { color: $text-error; text-style: bold; }
            & > .log--found { text-style: reverse; }
        }
        #status { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        Input { height: 1; padding: 0 1; display: none; }
        &.-searching Input { display: block; }
    }
    """

    BINDING_GROUP_TITLE = "Log"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close_search", "Close search", id="log.close-search", show=False)
    ]

    rank: reactive[int | None] = reactive(None)
    """The one rank whose lines are shown; None for all."""

    pattern: reactive[str] = reactive("")
    """Only lines with this text are shown, whatever their case."""

    stream: reactive[tuple[str, ...]] = reactive(())
    """The streams whose lines alone are shown; empty for all."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._place = ""
        """Where among the lines with the text one is."""
        self._state = RunFacts()
        self._seen = 0
        self._wanted_count = 0
        """How many of the lines are shown."""

    def compose(self) -> ComposeResult:
        yield Static(id="status", markup=False)
        yield LogRows()
        # Compact: in one row there is no room for the border that the focus draws, and for what is typed.
        yield Input(placeholder=PLACEHOLDER, compact=True, select_on_focus=True)

    def on_mount(self) -> None:
        """Say how it follows."""
        self.watch(self.query_one(LogRows), "follow", self._show_status, init=True)

    @on(LogRows.Widened)
    def _wrap_anew(self) -> None:
        self._refill()

    @property
    def follow(self) -> bool:
        """Whether new lines are scrolled to."""
        return self.query_one(LogRows).follow

    def toggle_follow(self) -> None:
        """Follow, or stand still."""
        rows = self.query_one(LogRows)
        rows.follow = not rows.follow

    def show(self, state: RunFacts) -> None:
        """Append what has come since the last time."""
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

    def shown_lines(self) -> list[str]:
        """The lines on show, wrapped as they are, without time and rank."""
        return self.query_one(LogRows).texts()

    def open_search(self) -> None:
        """Let the user type what to look for."""
        self.add_class("-searching")
        self.query_one(Input).focus()

    def next_stream(self) -> None:
        """Show the lines of one stream alone; after the last one, all."""
        self.stream = STREAMS[(STREAMS.index(self.stream) + 1) % len(STREAMS)]

    def find(self, by: int) -> None:
        """Go to the next line with the text that was searched for, among all lines; or to the one before.

        Args:
            by: 1 or -1.
        """
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
        self._place = f"“{rows.needle}” {number} of {count} · n N" if count else f"“{rows.needle}” is in no line"
        self._show_status()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape is the screen's unless there is a search to close."""
        return self.has_class("-searching") or bool(self._place) if action == "close_search" else True

    def action_close_search(self) -> None:
        """Show all lines again."""
        self.remove_class("-searching")
        self.query_one(Input).value = ""
        self.pattern = self._place = self.query_one(LogRows).needle = ""
        self.query_one(LogRows).focus()

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
        """Show the lines of the chosen rank."""
        self._refill()

    def watch_stream(self) -> None:
        """Show the lines of the chosen stream."""
        self._refill()

    def watch_pattern(self) -> None:
        """Show the lines with the text."""
        self._refill()

    def _wanted(self, entries: list[LogEntry]) -> list[LogEntry]:
        """Those that are shown, of many thousands at a time."""
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
        # Of those that were counted some may be left out by now.
        some = min(self._wanted_count, len(self._state.log))
        left_out = self._state.log_count - len(self._state.log)
        parts = [
            who,
            ("the run's own words" if "run" in self.stream else f"{self.stream[0]} alone") if self.stream else "",
            how,
            self._place,
            f"only lines with “{self.pattern}”" if self.pattern else "",
            f"{some:,} of {lines}" if self.rank is not None or self.stream or self.pattern else lines,
            "esc: all" if self.pattern else "",
        ]
        if left_out > 0:
            parts.append(f"{left_out:,} earlier ones in ranks/*/")
        self.query_one("#status", Static).update(" · ".join(part for part in parts if part), layout=False)
