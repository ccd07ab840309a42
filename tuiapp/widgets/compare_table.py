"""Runs side by side in text: the legend, the configuration keys that differ, and the results."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from tuiapp.trainers.state.objective import Objective
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import fit, format_percent
from tuiapp.view.comparison import Line, differing, objective_line, results, row_name
from tuiapp.view.groups import Row, has_best
from tuiapp.view.palette import LETTERS, series_color
from tuiapp.view.run_list import state, state_counts
from tuiapp.widgets.colors import MUTED

WIDEST = 20
"""Most cells of a value; `tuiapp compare --json` prints it whole."""

RUN = "run"
"""Title of the first column."""

LEGEND_CELLS = 6
LEAST_NAME_CELLS = 11
RUN_ID_CELLS, LEAST_BESIDE_CELLS = 34, 44  # of a usual run id, and of the columns beside it
GAP = 2  # cells between two columns
MORE_CELLS = 10  # how many columns do not fit


class CompareTable(VerticalScroll):
    """A row per run, its name first; the arrow keys, and the wheel with shift, move through the columns beside it.

    Two runs are side by side, a row for each key and result; those in which they differ come first.
    """

    BINDING_GROUP_TITLE = "Table"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "shift(-1)", "Columns to the left", id="table.left", show=False),
        Binding("right", "shift(1)", "Columns to the right", id="table.right", show=False),
    ]

    DEFAULT_CSS = """
    CompareTable {
        height: auto;
        background: $background;
        padding: 0 1;
        scrollbar-size-vertical: 1;

        Static { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    first: reactive[int] = reactive(0, init=False)
    """Index of the first column beside the names."""

    def __init__(self) -> None:
        super().__init__()
        self._names, self._columns = Line(RUN, ()), list[Line]()
        self._keys = set[str]()  # names of the columns that stand out: what differs, and the values at the cursor
        self._differ = self._reads = False
        self._legend: list[tuple[Content, str]] = []  # of each run, and the style of its row
        self._behind = 0  # columns to the right of those shown
        self._is_pair = False  # two runs

    def compose(self) -> ComposeResult:
        yield Static(id="rows", markup=False)

    def show(
        self,
        rows: Sequence[Row],
        reading: Sequence[float | None],
        hidden: Container[int],
        read_out: Line | None = None,
        objective: Objective | None = None,
    ) -> None:
        """Shows runs and groups, with a star at the best by the objective.

        `reading` has the fraction read of each (None once complete), `hidden` the hidden indices.
        """
        states = [
            _state(row) if share is None else f"reading {format_percent(share)}"
            for row, share in zip(rows, reading, strict=True)
        ]
        keys, here = differing(rows), [read_out] if read_out else []
        self._is_pair = len(rows) == 2 and all(isinstance(row, RunInfo) for row in rows)
        self._names = Line(RUN, tuple(map(row_name, rows)))
        best, star = has_best(rows, objective) if objective else None, objective_line(rows, objective)
        stars = [star] if star is not None and best is not None else []
        # It may be among them under another name.
        outcome = [
            line for line in results(rows) if line.name != "state" and line.values not in [one.values for one in stars]
        ]
        if here and not self._reads:
            # The compared metric is the first column.
            self.set_reactive(CompareTable.first, 0)
        self._reads = bool(here)
        self._columns = [*here, Line("state", tuple(states)), *stars, *keys, *outcome]
        self._differ = bool(keys)
        self._keys = {line.name for line in [*here, *stars, *keys]}
        self._legend = []
        for place, row in enumerate(rows):
            color = series_color(place, dark=self.app.current_theme.dark)
            mark = ("  ", "") if place in hidden else ("━ ", color)
            star_of_row = ("★ " if row is best else "  ", "bold $text-primary")
            legend = Content.assemble((f"{LETTERS[place]} ", f"bold {color}"), mark, star_of_row)
            unreadable = isinstance(row, RunInfo) and row.status == "unreadable"
            self._legend.append((legend, MUTED if place in hidden or unreadable else ""))
        self._draw()

    def action_shift(self, by: int) -> None:
        """Moves through the columns; to the right while some do not fit."""
        if by < 0 or self._behind:
            self.first = max(0, self.first + by)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        event.stop()
        self.action_shift(-1)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        event.stop()
        self.action_shift(1)

    def watch_first(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self.first = 0
        self._draw()

    def _draw(self) -> None:
        if not self._columns:
            return
        if self._is_pair:
            self.query_one("#rows", Static).update(self._side_by_side())
            return
        width = self.size.width - LEGEND_CELLS - 1  # the scroll bar's column
        name_cells = min(
            _widest(self._names), max(LEAST_NAME_CELLS, width // 3, min(RUN_ID_CELLS, width - LEAST_BESIDE_CELLS))
        )
        shown, room = list[Line](), width - name_cells - GAP - MORE_CELLS
        for column in self._columns[self.first :]:
            room -= min(_widest(column), WIDEST) + GAP
            if room < -GAP and shown:
                break
            shown.append(column)
        self._behind = len(self._columns) - self.first - len(shown)
        widths = [name_cells, *(min(_widest(column), WIDEST) for column in shown)]
        columns = [self._names, *shown]
        heading = Content("  ").join(
            Content.styled(
                _side(one, fit(one.name, cells).rstrip(), cells),
                "bold $text-primary" if one.name in self._keys else MUTED,
            )
            for one, cells in zip(columns, widths, strict=True)
        )
        before = f"← {self.first}" if self.first else ""
        more = f"  {self._behind} more →" if self._behind else ""
        lines = [Content.assemble(f"{before:<{LEGEND_CELLS}}", heading, (more, MUTED))]
        for place, (legend, row_style) in enumerate(self._legend):
            cut = ((one, _cut(one.values[place], cells), cells) for one, cells in zip(columns, widths, strict=True))
            text = "  ".join(_side(*each) for each in cut)
            lines.append(Content.assemble(legend, (text, row_style)))
        if not self._differ:
            lines.append(Content.styled(f"{' ' * LEGEND_CELLS}their configurations are the same", MUTED))
        self.query_one("#rows", Static).update(Content("\n").join(lines))

    def _side_by_side(self) -> Content:
        self._behind = 0
        # Results that change keep their places.
        lines = sorted(self._columns, key=lambda line: line.name not in self._keys)
        keys = min(max(len(line.name) for line in lines), self.size.width // 3)
        room = (self.size.width - keys - 1) // 2 - GAP
        cells = [
            min(room, LEGEND_CELLS + max(len(line.values[side]) for line in [*lines, self._names])) for side in (0, 1)
        ]
        heading = [Content(" " * keys)]
        for (legend, style), name, wide in zip(self._legend, self._names.values, cells, strict=True):
            whole = Content.assemble(legend, (_cut(name, wide - LEGEND_CELLS), style))
            heading.append(whole.pad_right(max(0, wide - whole.cell_length)))
        rows = [Content("  ").join(heading)]
        for line in lines:
            style = "bold $text-primary" if line.name in self._keys else "" if len({*line.values}) > 1 else MUTED
            values = "  ".join(_cut(value, wide).ljust(wide) for value, wide in zip(line.values, cells, strict=True))
            rows.append(Content.assemble((fit(line.name, keys), style), f"  {values}"))
        if not self._differ:
            rows.append(Content.styled("their configurations are the same", MUTED))
        return Content("\n").join(rows)


def _widest(column: Line) -> int:
    return max(len(column.name), *(len(value) for value in column.values))


def _cut(value: str, width: int) -> str:
    """Keeps the end of a long value: it is usually a path."""
    return value if len(value) <= width else f"…{value[len(value) - width + 1 :]}"


def _side(column: Line, text: str, width: int) -> str:
    """Numbers are at the right, but for the ids of runs."""
    return text.rjust(width) if column.is_number and column.name != RUN else text.ljust(width)


def _state(row: Row) -> str:
    return state(row) if isinstance(row, RunInfo) else state_counts(row.infos)
