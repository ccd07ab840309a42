"""The table of runs: only visible rows are drawn, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from trainers.contract.rundir import RunDir
from trainers.state.signs import SIGNS
from trainers.state.summary import RunInfo
from trainers.state.text import fit
from tuiapp.view.run_list import state_name
from tuiapp.view.table import GAP, GAP_CELLS, Column, fitting
from tuiapp.widgets.colors import mark_selection

MARK_CELLS = 3
"""Cells before the columns, for the letter of a marked run and the star of the best."""


class RunTable(ScrollView, can_focus=True):
    """Runs in rows, with a cursor that stays on its run when the rows are sorted."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "runs--header",
        "runs--cursor",
        "runs--mark",
        "runs--live",
        "runs--good",
        "runs--info",
        "runs--error",
        "runs--warning",
    }

    DEFAULT_CSS = """
    RunTable {
        background: $background;
        scrollbar-size-vertical: 1;

        & > .runs--header { color: $text-muted; text-style: bold; background: $panel; }
        & > .runs--cursor { background: $foreground 12%; }
        &:focus > .runs--cursor { background: $primary 40%; text-style: bold; }
        & > .runs--mark { color: $text-primary; text-style: bold; }
        & > .runs--live { color: $text-primary; text-style: bold; }
        & > .runs--good { color: $text-success; }
        & > .runs--info { color: $text-muted; }
        & > .runs--error { color: $text-error; text-style: bold; }
        & > .runs--warning { color: $text-warning; text-style: bold; }
    }
    """

    BINDING_GROUP_TITLE = "List of runs"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", id="runs.up", show=False),
        Binding("down,j", "move(1)", "Down", id="runs.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="runs.page-up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="runs.page-down", show=False),
        Binding("home", "jump(0)", "First", id="runs.first", show=False),
        Binding("end", "jump(-1)", "Last", id="runs.last", show=False),
    ]

    cursor: reactive[int] = reactive(0)

    class CursorMoved(Message):
        """The cursor is on another run, or its run changed."""

    class RunChosen(Message):
        """The user clicked the run under the cursor."""

    @dataclass
    class ColumnChosen(Message):
        """The user clicked a column's title."""

        name: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._infos: Sequence[RunInfo] = ()
        self._marked: dict[RunDir, str] = {}
        self._sorted: tuple[str, bool] = ("", False)
        self._best: RunDir | None = None
        self._offered: Sequence[Column[RunInfo]] = ()
        self._columns: list[Column[RunInfo]] = []
        """Those of the offered ones that fit."""

    @property
    def current(self) -> RunInfo | None:
        return self._infos[self.cursor] if 0 <= self.cursor < len(self._infos) else None

    def show(
        self,
        infos: Sequence[RunInfo],
        marked: dict[RunDir, str],
        columns: Sequence[Column[RunInfo]],
        by: str,
        *,
        reverse: bool,
        best: RunInfo | None = None,
    ) -> None:
        """Shows runs in this order, the marked ones with their letters; `by` is the column that they are sorted by."""
        self._best = best.directory if best else None
        before = self.current
        self._infos, self._marked, self._offered, self._sorted = infos, marked, columns, (by, reverse)
        self._fit()
        # If its run is gone, the cursor keeps its row.
        place = next((n for n, info in enumerate(infos) if before and info.directory == before.directory), self.cursor)
        self.cursor = max(0, min(place, len(infos) - 1))
        self._scroll_to_cursor()
        self.refresh()
        if self.current != before:
            self.post_message(self.CursorMoved())

    def on_resize(self) -> None:
        self._fit()
        self._scroll_to_cursor()

    def watch_cursor(self, before: int, now: int) -> None:
        self._scroll_to_cursor()
        self.refresh()
        if before != now:
            self.post_message(self.CursorMoved())

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._go(self.cursor + by * max(1, self._rows_shown - 1))

    def action_jump(self, place: int) -> None:
        self._go(place if place >= 0 else len(self._infos) - 1)

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to a row, opens the row under it, or sorts by a title's column."""
        if event.y == 0:
            left = MARK_CELLS
            for column in self._columns:
                if left <= event.x < left + column.width:
                    self.post_message(self.ColumnChosen(column.name))
                left += column.width + GAP_CELLS
            return
        row = event.y - 1 + self.scroll_offset.y
        if row < len(self._infos):
            if row == self.cursor and event.chain > 1:
                self.post_message(self.RunChosen())
            self.cursor = row

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y == 0:
            segments = [Segment(self._heading(), self.rich_style + self.get_component_rich_style("runs--header"))]
            return Strip(segments).adjust_cell_length(width, segments[0].style)
        number = y - 1 + self.scroll_offset.y
        if not 0 <= number < len(self._infos):
            return Strip.blank(width, self.rich_style)
        base = self.rich_style
        if number == self.cursor:
            base += self.get_component_rich_style("runs--cursor")
        strip = Strip(self._row(self._infos[number], base)).adjust_cell_length(width, base)
        return mark_selection(self, strip, number)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        plain = Style.null()
        rows = ("".join(segment.text for segment in self._row(info, plain)) for info in self._infos)
        return selection.extract("\n".join(rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    @property
    def _rows_shown(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def _go(self, row: int) -> None:
        self.cursor = max(0, min(row, len(self._infos) - 1))

    def _scroll_to_cursor(self) -> None:
        top, shown = self.scroll_offset.y, self._rows_shown
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + shown:
            self.scroll_to(y=self.cursor - shown + 1, animate=False, immediate=True)

    def _fit(self) -> None:
        self._columns = fitting(self._offered, self.scrollable_content_region.width - MARK_CELLS, self._infos)
        # The heading stays and takes a row from the scrollable area.
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._infos) + 1)

    def _heading(self) -> str:
        by, reverse = self._sorted
        line = " " * MARK_CELLS
        for column in self._columns:
            title = column.title
            if column.name == by:
                arrow = "▼" if column.falls != reverse else "▲"
                title += f" {arrow}" if len(title) + 2 <= column.width else arrow
            if column.left:
                line += fit(title, column.width)
            else:
                # A title made too long by its arrow starts in the gap before it.
                line = line[: len(line) - max(0, len(title) - column.width)] + title.rjust(column.width)
            line += GAP
        return line

    def _row(self, info: RunInfo, base: Style) -> list[Segment]:
        mark = self._marked.get(info.directory, " ") + ("★" if info.directory == self._best else " ")
        segments = [Segment(mark.ljust(MARK_CELLS), base + self.get_component_rich_style("runs--mark", partial=True))]
        # A colour would be hard to read on the cursor's background; the symbol and word suffice.
        colored = base.bgcolor is None or base.bgcolor == self.rich_style.bgcolor
        tone = SIGNS[state_name(info)].tone
        state = self.get_component_rich_style(f"runs--{tone}", partial=True) if colored else Style()
        faint = self.get_component_rich_style("runs--info", partial=True) if colored else Style()
        styles = {"state": base + state, "run": base + faint}
        return segments + [Segment(one.draw(info) + GAP, styles.get(one.name, base)) for one in self._columns]
