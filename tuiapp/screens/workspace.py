"""The list of runs and the charts of the marked ones: beside it, below it, or in its place."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.screens.chart_grid import ChartGrid, ChartMemory, Layout, chart_keys
from tuiapp.screens.chart_sources import ComparisonSource
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.known_metrics import first_choice, is_bookkeeping, ordered, second_choice
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import format_percent, plural
from tuiapp.view.chart_words import PAUSED, setting_words
from tuiapp.view.grid import LEAST_HEIGHT, grid_size
from tuiapp.widgets.chart_panel import GridChart, line_of
from tuiapp.widgets.run_table import RunTable

HIGH = 34
"""From this height on the charts are below the list, and below a short one that leaves room for them."""

WIDE = 150
"""From this width on the charts are beside the list; without room for both, either is shown."""

LEAST_ROWS = 4
"""Rows of a list that scrolls above the charts of an open group, at least."""

AROUND = 8
"""Lines of the heading, the details and the footer."""

FOLLOW_S = 0.15
"""How long the cursor rests on a run before its journal is read; and the charts' delay after the first picture."""


class Charted(NamedTuple):
    """The runs whose curves are shown."""

    runs: Sequence[RunInfo] = ()
    places: Mapping[RunDir, int] = {}
    """Run → the index of its letter and colour."""
    groups: Mapping[int, str] = {}
    """Names of the groups whose runs share a place, by place."""
    unlike: Sequence[int] = ()
    """Places of groups whose mean says nothing: their runs have a line each."""
    objective: str = ""
    """The metric of the first chart."""
    left_out: int = 0
    """Runs of the group for which there are no letters."""
    is_open: bool = False
    """Whether a group is open: its charts then come before rows of the list that would fit."""


class Workspace(Container):
    """Makes the charts when they are first shown, after the list's first picture."""

    def __init__(self, *children: Widget) -> None:
        """Takes the widgets of the list's place."""
        super().__init__(Vertical(*children, id="list"))
        self._charts: RunsCharts | None = None
        self._memory = ChartMemory(self)
        self._wanted = self._memory.view.charts
        """Whether there are charts where there is room for both."""
        self._alone = False
        """Whether the charts have the list's place where there is not."""
        self._charted = Charted()
        self._timer: Timer | None = None

    @property
    def shows_charts(self) -> bool:
        """Whether there are charts, with or without the list."""
        return self.has_class("-charts")

    def chart(self, charted: Charted, *, at_once: bool) -> None:
        """Shows the curves of these runs: at once, or when the cursor rests on them."""
        self._charted = charted
        self._arrange()
        if self._timer is not None:
            self._timer.stop()
        if at_once and self._charts is not None:
            self.call_later(self._follow)
        else:
            self._timer = self.set_timer(FOLLOW_S, self._follow)

    async def _follow(self) -> None:
        if not self.shows_charts or not self.is_attached:
            return
        if self._charts is None:
            self._charts = RunsCharts()
            await self.mount(self._charts)
        self._charts.show(self._charted)

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        size, rows = self.screen.size, len(self.query_one(RunTable).rows)
        below = size.height >= min(HIGH, AROUND + 1 + rows + LEAST_HEIGHT)
        beside = not below and size.width >= WIDE
        shares = self._charted.is_open and size.height >= AROUND + 1 + LEAST_ROWS + LEAST_HEIGHT
        scrolls = shares and not below and not beside
        below |= scrolls
        alone = not beside and not below
        charts = bool(self._charted.runs) and (self._alone if alone else self._wanted)
        classes = {"-beside": beside, "-below": below, "-scrolls": scrolls, "-alone": alone, "-charts": charts}
        for name, is_set in classes.items():
            self.set_class(is_set, name)
        self.screen.set_class(alone and charts, "-only-charts")

    async def toggle(self) -> None:
        """Shows or hides the charts; where there is room for one only, in place of the list."""
        if not self._charted.runs:
            return
        if self.has_class("-alone"):
            self._alone = not self._alone
        else:
            self._wanted = not self._wanted
            self._memory.keep(charts=self._wanted)
        self._arrange()
        await self._follow()
        if self._charts is not None and self.has_class("-alone") and self._alone:
            self._charts.grid.main.focus()
        elif not self.shows_charts:
            self.query_one(RunTable).focus()

    async def on_runs_charts_left(self) -> None:
        """Goes back to the list, which the charts may hide."""
        if self.has_class("-alone"):
            await self.toggle()
        else:
            self.query_one(RunTable).focus()

    def on_unmount(self) -> None:
        self._memory.close()


MOST = 4
"""Most charts at once."""

TICK_S = 0.25
"""Time between two looks at what was read."""

RUN_S = 0.1
"""Time between two drawings of live runs, for each run: many curves cost more."""

PATIENCE_S = 0.5
"""Time until an empty chart is explained."""


class RunsCharts(Container):
    """The runs' charts, as many as there is room for; what they show is remembered, but for the objective's."""

    BINDING_GROUP_TITLE = "Charts"

    BINDINGS: ClassVar[list[BindingType]] = [
        *chart_keys("runs-charts", without=("grid", "several", "form")),
        Binding("escape", "back", "To the list", id="runs-charts.back", show=False),
    ]

    DEFAULT_CSS = """
    RunsCharts {
        & > #legends { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
        ChartGrid { grid-gutter: 0 1; }
    }
    """

    class Left(Message):
        """The user has finished with the charts: the list is next."""

    def __init__(self) -> None:
        super().__init__()
        self._source = ComparisonSource(CompareFeed(listed=True))
        self._feed = self._source.feed
        self.grid = ChartGrid(self._source, self._new, self._layout)
        self._objective = ""
        self._places: Mapping[RunDir, int] = {}
        self._left_out = 0
        beside = self.grid.memory.view.beside
        self._of_user = {index: name for index, name in enumerate(beside, start=1) if name}
        """Metrics that the user chose for charts, by their number."""
        self._seen = -1
        """Version of the curves that were drawn last."""
        self._drawn_at = 0.0
        self._patience: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="legends", markup=False)
        yield self.grid

    def _new(self, number: int) -> GridChart:
        chart = GridChart(self._source)
        chart.can_focus, chart.is_fixed = True, False
        for name in ("drawn", "cursor", "has_focus"):
            self.watch(chart, name, self._show_legend, init=False)
        return chart

    def on_mount(self) -> None:
        self._feed.start()
        self.set_interval(TICK_S, self._tick)

    def on_unmount(self) -> None:
        self._feed.close()

    def show(self, charted: Charted) -> None:
        """Draws the curves of these runs at their places; those that are drawn already are not read anew."""
        runs, objective = charted.runs, charted.objective
        if objective != self._objective:
            self._objective, self.grid.names = objective, None
            self._of_user.pop(0, None)
        self._source.groups, self._source.unlike = charted.groups, charted.unlike
        self._left_out = charted.left_out
        places = {info.directory: charted.places[info.directory] for info in runs}
        if places != self._places:
            come = places.keys() - self._places.keys()
            self._places, self._drawn_at = places, 0.0
            self.grid.close_cursor()
            self._feed.show(runs, places)
            self._source.is_patient = True
            if self._patience is not None:
                self._patience.stop()
            self._patience = self.set_timer(PATIENCE_S, self._explain)
            if come:
                # The charts stay as they are until the next look, when most runs are read.
                return
            self.grid.redraw()
        elif self.grid.names is None:
            self.update()
        else:
            self._feed.note_infos(runs)

    def _explain(self) -> None:
        self._source.is_patient = False
        self.grid.redraw()

    def _tick(self) -> None:
        waits = not self._source.is_reading and time.monotonic() - self._drawn_at < RUN_S * len(self._places)
        if self.display and self.screen.is_current and self._feed.version != self._seen and not waits:
            self._drawn_at = time.monotonic()
            self.update()

    def update(self) -> None:
        """Draws what is new."""
        self._seen = self._feed.version
        self.grid.update()

    def _layout(self, names: Sequence[str], size: Size) -> Layout:
        """Returns the user's metrics at their places, and between them what is of interest, the objective first."""
        columns, rows = grid_size(min(MOST, len(names)), size.width, size.height)
        wanted = [self._of_user.get(number) for number in range(min(MOST, columns * rows))]
        first = first_choice(names)
        second = second_choice(names, first)
        by_interest = dict.fromkeys([self._objective, first, second, *sorted(ordered(names), key=is_bookkeeping)])
        remaining = (name for name in by_interest if name in names and name not in wanted)
        return Layout([name if name in names else next(remaining, None) for name in wanted], columns, rows)

    @on(ChartGrid.MetricChosen)
    def _take(self, event: ChartGrid.MetricChosen) -> None:
        """Shows a metric that the user chose."""
        self._of_user[event.index] = event.name
        self.grid.memory.keep(beside=tuple(self._of_user.get(number, "") for number in range(1, MOST)))
        self.grid.lay_out()

    def _show_legend(self) -> None:
        """Says whose curves these are or, with a cursor, their values there; and how they are drawn."""
        panel = next((chart for chart in self.grid.panels if chart.cursor is not None), self.grid.active)
        chart, options, width = panel.drawn, panel.options, self.size.width - 2
        shares = [run.progress for run in self._feed.runs if run.progress is not None]
        settings = [
            *([f"and {plural(self._left_out, 'run')} more"] if self._left_out else []),
            *([f"reading {format_percent(sum(shares) / len(shares))}"] if shares else []),
            *(PAUSED if panel.cursor is not None else []),
            *setting_words(chart, options, "sight", "clipped", "log", "axis", "smoothing"),
        ]
        dark = self.app.current_theme.dark
        legend = self._source.legend(chart, options, panel.cursor, dark=dark, width=width)
        self.query_one("#legends", Static).update(line_of(legend, settings, width), layout=False)

    def action_chart(self, what: str) -> None:
        self.grid.do(what)

    def action_back(self) -> None:
        if not self.grid.close_cursor():
            self.post_message(self.Left())
