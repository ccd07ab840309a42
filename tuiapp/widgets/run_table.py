"""The table of runs: only visible rows are drawn, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.signs import SIGNS
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import fit, plural
from tuiapp.view.groups import ListRow, RunGroup
from tuiapp.view.marks import letter_of, series_color
from tuiapp.view.run_list import state_name
from tuiapp.view.table import GAP, GAP_CELLS, Column, fitting
from tuiapp.widgets.colors import BAND_COLOR, mark_selection

MARK_CELLS = 3
"""Cells before the columns, for the letter of a marked run, the star of the best, and the sign of the baseline."""

BASELINE = "="


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
        Binding("right", "turn(True)", "Open the group", id="runs.open-group", show=False),
        Binding("left", "turn(False)", "Close the group", id="runs.close-group", show=False),
    ]

    cursor: reactive[int] = reactive(0)

    class CursorMoved(Message):
        """The cursor is on another run, or its run changed."""

    class RunChosen(Message):
        """The user clicked the row under the cursor."""

    @dataclass
    class GroupTurned(Message):
        """The user opened or closed a group."""

        group: RunGroup
        is_open: bool

    @dataclass
    class ColumnChosen(Message):
        """The user clicked a column's title."""

        name: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[ListRow] = ()
        """All rows, in their order."""
        self._marked: Mapping[RunDir, int] = {}
        self._chosen = False
        self._sorted: tuple[str, bool] = ("", False)
        self._stars: dict[RunDir | str, str] = {}
        self._baseline: RunDir | None = None
        self._offered: Sequence[Column[ListRow]] = ()
        self._columns: list[Column[ListRow]] = []
        """The offered columns that fit."""

    @property
    def row(self) -> ListRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    @property
    def current(self) -> RunInfo | None:
        """The run under the cursor; None if that is on a group."""
        return self.row.info if self.row else None

    def show(
        self,
        rows: Sequence[ListRow],
        columns: Sequence[Column[ListRow]],
        by: str,
        *,
        reverse: bool,
        stars: dict[RunDir | str, str],
        baseline: RunDir | None = None,
    ) -> None:
        """Shows rows in this order, the best with `stars` by rows' ids; `by` is the column that they are sorted by."""
        self._stars, self._baseline = stars, baseline
        before = self.row
        self.rows, self._offered, self._sorted = rows, columns, (by, reverse)
        self._fit()
        self.cursor = max(0, min(self._place_of(before), len(rows) - 1))
        self._scroll_to_cursor()
        self.refresh()
        if self.row != before:
            self.post_message(self.CursorMoved())

    def mark(self, places: Mapping[RunDir, int], *, chosen: bool) -> None:
        """Shows the letters of runs' places: of those that are `chosen`, or else of those whose curves are shown."""
        if (places, chosen) != (self._marked, self._chosen):
            self._marked, self._chosen = places, chosen
            self.refresh()

    @property
    def whole(self) -> Sequence[RunInfo]:
        """The runs of the row under the cursor, or of the open group that it is in."""
        above = (row for row in self.rows[self.cursor :: -1] if not row.depth)
        return next(above).infos if self.row else ()

    def _place_of(self, before: ListRow | None) -> int:
        """Returns where a row is now, or else its run, or the group that has it, or else the cursor."""
        if before is None:
            return self.cursor
        if (index := next((n for n, row in enumerate(self.rows) if row.id == before.id), None)) is not None:
            return index
        run = before.infos[0].directory
        has_run = (n for n, row in enumerate(self.rows) if any(info.directory == run for info in row.infos))
        return next(has_run, self.cursor)

    def on_resize(self) -> None:
        self._fit()
        self._scroll_to_cursor()

    def watch_cursor(self, before: int, now: int) -> None:
        self._scroll_to_cursor()
        self.refresh()
        if before != now:
            self.post_message(self.CursorMoved())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves the keys that open groups to others where there are none."""
        return action != "turn" or any(row.group for row in self.rows)

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._go(self.cursor + by * max(1, self._rows_shown - 1))

    def action_jump(self, index: int) -> None:
        self._go(index if index >= 0 else len(self.rows) - 1)

    def jump_targets(self) -> list[tuple[Offset, Callable[[], object]]]:
        """Returns the rows and the columns' titles."""
        targets, left = list[tuple[Offset, Callable[[], object]]](), MARK_CELLS
        for column in self._columns:
            x = left if column.left else left + column.width - min(column.width, len(column.title))
            targets.append((Offset(x, 0), partial(self.post_message, self.ColumnChosen(column.name))))
            left += column.width + GAP_CELLS
        top = self.scroll_offset.y
        for row in range(top, min(len(self.rows), top + self._rows_shown)):
            targets.append((Offset(0, row - top + 1), partial(self._go_to, self.rows[row].id)))
        return targets

    def _go_to(self, id: RunDir | str) -> None:
        """Moves focus and cursor to a row, wherever it is by now."""
        self.focus()
        self._go(next((index for index, row in enumerate(self.rows) if row.id == id), self.cursor))

    def action_turn(self, is_open: bool) -> None:
        """Opens or closes the group under the cursor, or closes the one that its row is in."""
        if (row := self.row) is None:
            return
        index = self.cursor
        if not is_open and not row.is_open:
            index = next((n for n in range(index, -1, -1) if self.rows[n].depth < row.depth), index)
        if (group := self.rows[index].group) and self.rows[index].is_open != is_open:
            self.cursor = index
            self.post_message(self.GroupTurned(group, is_open))

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
        if row < len(self.rows):
            if row == self.cursor and event.chain > 1:
                self.post_message(self.RunChosen())
            self.cursor = row

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y == 0:
            segments = [Segment(self._heading(), self.rich_style + self.get_component_rich_style("runs--header"))]
            return Strip(segments).adjust_cell_length(width, segments[0].style)
        number = y - 1 + self.scroll_offset.y
        if not 0 <= number < len(self.rows):
            return Strip.blank(width, self.rich_style)
        base = self.visual_style.rich_style
        if number == self.cursor:
            base += self.get_component_rich_style("runs--cursor")
        strip = Strip(self._cells(self.rows[number], base)).adjust_cell_length(width, base)
        return mark_selection(self, strip, number)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        plain = Style.null()
        rows = ("".join(segment.text for segment in self._cells(row, plain)) for row in self.rows)
        return selection.extract("\n".join(rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    @property
    def _rows_shown(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def _go(self, row: int) -> None:
        self.cursor = max(0, min(row, len(self.rows) - 1))

    def _scroll_to_cursor(self) -> None:
        top, shown = self.scroll_offset.y, self._rows_shown
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + shown:
            self.scroll_to(y=self.cursor - shown + 1, animate=False, immediate=True)

    def _fit(self) -> None:
        width = self.scrollable_content_region.width - MARK_CELLS
        self._columns = fitting(self._offered, width, self.rows)
        if self._hidden:
            # How many there are has room of its own. Cells are what a long list costs: they are measured once.
            measured = [replace(column, most=0) for column in self._columns]
            self._columns = fitting(measured, width - len(f" +{self._hidden}"))
        # The heading stays and takes a row from the scrollable area.
        self.virtual_size = Size(self.scrollable_content_region.width, len(self.rows) + 1)

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
        line = line[:-GAP_CELLS]
        room = self.scrollable_content_region.width - len(line)
        words = (f"+{plural(self._hidden, 'more column')}", f"+{self._hidden} more", f"+{self._hidden}")
        fits = (word for word in words if self._hidden and len(word) < room)
        return line + next(fits, "").rjust(room)

    @property
    def _hidden(self) -> int:
        """How many columns do not fit."""
        return len(self._offered) - len(self._columns)

    def _cells(self, row: ListRow, base: Style) -> list[Segment]:
        places = {self._marked.get(info.directory) for info in row.infos}
        # Of a group that is marked as a whole its first letter.
        has_letter = None not in places and (self._chosen or len(places) == 1)
        letter = min((index for index in places if index is not None), default=None) if has_letter else None
        pin = BASELINE if self._baseline in [info.directory for info in row.infos] and not row.is_open else " "
        mark = (" " if letter is None else letter_of(letter)) + self._stars.get(row.id, " ") + pin
        mark_style = base + self.get_component_rich_style("runs--mark", partial=True)
        # A colour would be hard to read on the cursor's background; the symbol and word suffice.
        colored = base.bgcolor is None or base.bgcolor == self.rich_style.bgcolor
        if colored and letter is not None:
            # That of its curve.
            dark = self.app.current_theme.dark
            color = series_color(letter, dark=dark) if letter >= 0 else BAND_COLOR
            mark_style += Style(color=color, bold=self._chosen)
        segments = [Segment(mark.ljust(MARK_CELLS), mark_style)]
        tones = {"warning" if info.blemishes else SIGNS[state_name(info)].tone for info in row.infos}
        tone = tones.pop() if len(tones) == 1 else "live" if "live" in tones else "info"
        state = self.get_component_rich_style(f"runs--{tone}", partial=True) if colored else Style()
        faint = self.get_component_rich_style("runs--info", partial=True) if colored else Style()
        styles = {"state": base + state, "run": base + faint}
        return segments + [Segment(column.draw(row) + GAP, styles.get(column.name, base)) for column in self._columns]
