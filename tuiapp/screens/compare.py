"""Compare: the curves of several runs in one chart, the keys that differ, and the results."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.library.chart_view import read_view
from tuiapp.screens.chart_grid import ChartGrid, Layout, chart_keys
from tuiapp.screens.chart_sources import Best, ComparisonSource
from tuiapp.screens.metrics_grid import MetricsGrid
from tuiapp.terminal.textual_fixes import CoveredScreenFix
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.objective import Objective, objective_of
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import fit, format_percent, join_words, plural
from tuiapp.view.chart_words import PAUSED, setting_words
from tuiapp.view.comparison import MOST, Line, compared, differing, objective_line, results, row_name
from tuiapp.view.grid import Pages
from tuiapp.view.groups import Row, RunGroup, has_best, refreshed, runs_of
from tuiapp.view.marks import LETTERS, series_color
from tuiapp.view.run_list import objective_words, state, state_counts
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.steady_footer import SteadyFooter

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
            f"reading {format_percent(share)}"
            if share is not None
            else (state(row) if isinstance(row, RunInfo) else state_counts(row.infos))
            for row, share in zip(rows, reading, strict=True)
        ]
        keys, here = differing(rows), [read_out] if read_out else []
        self._is_pair = len(rows) == 2 and all(isinstance(row, RunInfo) for row in rows)
        self._names = Line(RUN, tuple(map(row_name, rows)))
        best, star = has_best(rows, objective) if objective else None, objective_line(rows, objective)
        stars = [star] if star is not None and best is not None else []
        # It may be among them under another name.
        outcome = [
            line for line in results(rows) if line.name != "state" and line.values not in [it.values for it in stars]
        ]
        if here and not self._reads:
            # The compared metric is the first column.
            self.set_reactive(CompareTable.first, 0)
        self._reads = bool(here)
        self._columns = [*here, Line("state", tuple(states)), *stars, *keys, *outcome]
        self._differ = bool(keys)
        self._keys = {line.name for line in [*here, *stars, *keys]}
        self._legend = []
        for index, row in enumerate(rows):
            color = series_color(index, dark=self.app.current_theme.dark)
            mark = ("  ", "") if index in hidden else ("━ ", color)
            star_of_row = ("★ " if row is best else "  ", "bold $text-primary")
            legend = Content.assemble((f"{LETTERS[index]} ", f"bold {color}"), mark, star_of_row)
            unreadable = isinstance(row, RunInfo) and row.status == "unreadable"
            self._legend.append((legend, MUTED if index in hidden or unreadable else ""))
        self._draw()

    def action_shift(self, by: int) -> None:
        """Moves through the columns, to the right only while some do not fit."""
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
                _side(column, fit(column.name, cells).rstrip(), cells),
                "bold $text-primary" if column.name in self._keys else MUTED,
            )
            for column, cells in zip(columns, widths, strict=True)
        )
        before = f"← {self.first}" if self.first else ""
        to_the_right = f"  {self._behind} more →" if self._behind else ""
        lines = [Content.assemble(f"{before:<{LEGEND_CELLS}}", heading, (to_the_right, MUTED))]
        for index, (legend, row_style) in enumerate(self._legend):
            cells_of = zip(columns, widths, strict=True)
            text = "  ".join(_side(column, _cut(column.values[index], cells), cells) for column, cells in cells_of)
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
            cell = Content.assemble(legend, (_cut(name, wide - LEGEND_CELLS), style))
            heading.append(cell.pad_right(max(0, wide - cell.cell_length)))
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
    """Returns a text padded to its column's width: numbers stand at the right, but not the ids of runs."""
    return text.rjust(width) if column.is_number and column.name != RUN else text.ljust(width)


TICK_S = 0.25
"""Time between two drawings of newly read events."""

PATIENCE_S = 0.5
"""Time until an empty chart is explained."""


class CompareScreen(CoveredScreenFix[None]):
    """One chart with a curve per run, and a table that is its legend.

    It takes two to 26 runs and groups. Of a group whose runs differ in their seed alone it draws the mean and a band,
    of another each run in the group's colour.
    """

    CSS_PATH = "compare.tcss"
    MANUAL = "runs"

    AUTO_FOCUS: ClassVar[str | None] = "ChartPanel"

    BINDINGS: ClassVar[list[BindingType]] = [
        *chart_keys("compare", "metric", "grid", "axis", "log", "cursor", "in", without=("several", "form")),
        Binding("z", "fold", "Fold groups", tooltip="Fold or unfold groups", id="compare.fold", show=False),
        *(
            Binding(
                str(number),
                f"show_curve({number - 1})",
                f"Curve {LETTERS[number - 1]} on and off",
                id=f"compare.curve-{number}",
                show=False,
            )
            for number in range(1, 10)
        ),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", id="app.help"),
        Binding("escape", "back", "Back", id="compare.back"),
        Binding("q", "app.quit", "Quit", id="app.quit-letter"),
    ]

    KEY_GROUPS: ClassVar[dict[str, Sequence[str]]] = {
        "Charts": ("chart", "grid"),
        "Curves": ("show_curve", "fold"),
    }

    def __init__(self, runs: Sequence[RunInfo]) -> None:
        super().__init__()
        self._source = ComparisonSource(CompareFeed(runs))
        self._feed = self._source.feed
        self.charts = ChartGrid(
            self._source, lambda _: ChartPanel(self._source), lambda names, _: Layout([self._first(names)])
        )
        self._view = read_view()[0]
        self._rows: Sequence[Row] = runs
        """The runs and groups that have a curve."""
        self._group(compared(runs) if self._view.folded or len(runs) > MOST else runs)
        self._opened_on = ""
        """The metric that was drawn first."""
        self._seen = -1
        """Version of the curves that were shown last."""
        self._grid: MetricsGrid | None = None
        self._pages = Pages()

    def _first(self, names: Sequence[str]) -> str:
        """Returns what is drawn: what the user chose here, or else what the runs were best by at first."""
        if not self._opened_on and names:
            objective = self._objective
            if objective is not None and objective.name in names:
                self._opened_on = objective.name
                # What was chosen the last time was for a loss.
                self.chart.change(log=self.chart.options.log and not objective.rises)
            else:
                self._opened_on = self.charts.first(names)
        is_there = self._opened_on in names and not self.charts.chosen
        return self._opened_on if is_there else self.charts.first(names)

    @property
    def _objective(self) -> Objective | None:
        infos = [run.info for run in self._feed.runs]
        return objective_of(infos, self._view.objective, rises=self._view.rises)

    @property
    def chart(self) -> ChartPanel:
        return self.charts.main

    def compose(self) -> ComposeResult:
        with Vertical(id="charts"):
            yield Static(id="heading", markup=False)
            yield self.charts
        yield CompareTable()
        yield SteadyFooter("chart('in')", "chart('log')")

    def on_mount(self) -> None:
        for name in ("drawn", "cursor"):
            self.watch(self.chart, name, self._show_words, init=False)
        self._feed.start()
        self.set_interval(TICK_S, self._update)
        self.set_timer(PATIENCE_S, self._explain)

    def on_unmount(self) -> None:
        self._feed.close()

    def _update(self) -> None:
        if self._feed.version != self._seen:
            self._seen = self._feed.version
            if self._grid is None:
                self.charts.update()
            else:
                self._rank()
                self._grid.update()

    def _explain(self) -> None:
        self._source.is_patient = False
        self.charts.redraw()

    def _show_words(self) -> None:
        """Shows what is drawn above the chart, and the values at the cursor in the table."""
        runs, chart, cursor, options = self._feed.runs, self.chart.drawn, self.chart.cursor, self.chart.options
        settings, reading = self._settings(), None
        if cursor is not None:
            here, end = (chart.place_words(x) for x in (chart.x_at(cursor), chart.extent[1]))
            # Padded to its widest text so that the columns beside it do not move.
            reading = Line(here.ljust(len(end)), tuple(self._source.values(chart, cursor, options.metric)))
            settings = [here, *PAUSED]
        label = metric(options.metric).label
        objective = self._rank()
        ranked = objective_words(objective, [run.info for run in runs]) if objective else ""
        # Of runs on the same data the table says what they are best by.
        unlike = f"★ {ranked}" if objective and ranked != str(objective) else ""
        text = Content.assemble(self._source.title(), f"  {label}  ", (join_words([*settings, unlike]), MUTED))
        heading = self.query_one("#heading", Static)
        heading.update(text, layout=heading.size.height != -(-text.cell_length // max(1, heading.size.width)))
        table, rows = self.query_one(CompareTable), self._fresh_rows()
        shares = [
            min((run.progress for run in runs if run.place == place and run.progress is not None), default=None)
            for place in range(len(rows))
        ]
        table.show(rows, shares, self._source.hidden, reading, objective)

    def _rank(self) -> Objective | None:
        """Finds the best row by now; returns what it is best by."""
        objective = self._objective
        rows, self._source.best = self._fresh_rows(), None
        if objective is not None and (line := objective_line(rows, objective)) is not None:
            best = has_best(rows, objective)
            bests = (Best(objective, index, line.values[index]) for index, row in enumerate(rows) if row is best)
            self._source.best = next(bests, None)
        return objective

    def _group(self, rows: Sequence[Row]) -> None:
        """Gives each row a curve."""
        self._rows = rows
        places = {info.directory: index for index, row in enumerate(rows) for info in runs_of(row)}
        self._source.hidden.clear()
        groups = {index: row for index, row in enumerate(rows) if isinstance(row, RunGroup)}
        self._source.groups = {place: row_name(row) for place, row in groups.items()}
        self._source.unlike = [place for place, row in groups.items() if not row.is_alike]
        infos = [run.info for run in self._feed.runs]
        self._feed.show(sorted(infos, key=lambda info: places[info.directory]), places)

    def _fresh_rows(self) -> list[Row]:
        """Returns the rows with what is known by now of their runs."""
        infos = {run.info.directory: run.info for run in self._feed.runs}
        return [refreshed(row, infos) for row in self._rows]

    def action_fold(self) -> None:
        """Gives groups a curve, or each run."""
        infos = [run.info for run in self._feed.runs]
        if len(self._rows) < len(infos) and len(infos) > MOST:
            self.notify(f"These are {len(infos)} runs: more than {MOST} have curves in groups only.")
            return
        rows = infos if len(self._rows) < len(infos) else compared(infos)
        if len(rows) == len(self._rows):
            self.notify("No runs have the same group, or differ in their seed alone, beside others.")
            return
        self._group(rows)
        self.charts.redraw()

    def _settings(self) -> list[str]:
        chart, options, groups, unlike = self.chart.drawn, self.chart.options, self._source.groups, self._source.unlike
        shares = [run.progress for run in self._feed.runs if run.progress is not None]
        read = f"reading {plural(len(shares), 'run')}, {format_percent(sum(shares) / len(shares))}" if shares else ""
        smoothing = [] if metric(options.metric).held_out else ["smoothing"]
        return [
            *setting_words(chart, options, "sight", "axis", *smoothing, "scale", "clipped"),
            read,
            "groups: mean, least to greatest" if len(groups) > len(unlike) else "",
            f"{', '.join(LETTERS[place] for place in unlike)}: a line per run" if unlike else "",
            *(
                f"{LETTERS[run.place]}: {run.curves.gaps.short}"
                for run in self._feed.runs
                if run.place not in self._source.hidden and run.curves.gaps.short
            ),
        ]

    def action_chart(self, what: str) -> None:
        """Does it to the charts; where they have nothing to move, the arrows move through the table's columns."""
        idle = self.chart.cursor is None and self.chart.options.window is None
        if what in ("left", "right") and idle:
            self.query_one(CompareTable).action_shift(1 if what == "right" else -1)
        else:
            self.charts.do(what)

    @on(ChartGrid.MetricChosen)
    def _show_metric(self, event: ChartGrid.MetricChosen) -> None:
        self.charts.choose_first(event.name)

    def action_grid(self) -> None:
        self._grid = MetricsGrid(self._source, self.chart.options, self._pages, objective=self._rank())
        self.app.clear_notifications()
        self.app.push_screen(self._grid)

    def on_screen_resume(self) -> None:
        self._grid, self._seen = None, -1

    def action_show_curve(self, place: int) -> None:
        if place < len(self._rows):
            self._source.hidden ^= {place}
            self.charts.redraw()
        else:
            self.notify(f"There are {len(self._rows)} curves: the keys 1 to {len(self._rows)} hide and show them.")

    def action_back(self) -> None:
        """Closes the cursor, else the screen."""
        if not self.charts.close_cursor() and len(self.app.screen_stack) > 1:
            self.dismiss()
