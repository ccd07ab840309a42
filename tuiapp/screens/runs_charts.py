"""The charts of the Runs screen: the objective and what is of interest beside it, with a curve per run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.screens.chart_sources import ComparisonSource
from tuiapp.screens.charts import ChosenCharts
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.known_metrics import first_choice, is_bookkeeping, ordered, second_choice
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import format_percent
from tuiapp.view.grid import grid_size
from tuiapp.widgets.chart_board import view_keys
from tuiapp.widgets.chart_legend import clipped_words, line_of, sight_words, smoothing_words
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.grid_chart import GridChart

MOST = 4
"""Charts at once."""

TICK_S = 0.25
"""Between two looks at what was read."""

RUN_S = 0.1
"""Between two drawings of live runs, for each run: many curves cost more."""

PATIENCE_S = 0.5
"""Until an empty chart is explained."""


class RunsCharts(ChosenCharts):
    """As many charts as there is room for; what they show is remembered, but for the first, which has the objective."""

    BINDING_GROUP_TITLE = "Charts"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "chart('metric')", "Metric", id="runs-charts.metric", show=False),
        Binding("t", "chart('axis')", "Axis", id="runs-charts.axis", show=False),
        Binding("y", "chart('log')", "Log y", id="runs-charts.log", show=False),
        Binding(
            "left_square_bracket",
            "chart('rougher')",
            "Less smooth",
            key_display="[",
            id="runs-charts.rougher",
            show=False,
        ),
        Binding(
            "right_square_bracket",
            "chart('smoother')",
            "Smoother",
            key_display="]",
            id="runs-charts.smoother",
            show=False,
        ),
        *view_keys("runs-charts", show=False),
        Binding("escape", "back", "To the list", id="runs-charts.back", show=False),
    ]

    DEFAULT_CSS = """
    RunsCharts {
        & > #legends { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
        & > #grid { layout: grid; grid-gutter: 0 1; height: 1fr; }
        GridChart:focus-within #title { background: $primary 40%; text-style: bold; }
    }
    """

    class Left(Message):
        """The user has finished with the charts: the list is next."""

    def __init__(self) -> None:
        self._source = ComparisonSource(CompareFeed(listed=True))
        self._feed = self._source.feed
        self._charts = [GridChart(self._source) for _ in range(MOST)]
        super().__init__(Static(id="legends", markup=False), Container(*self._charts, id="grid"))
        self._objective = ""
        self._places: Mapping[RunDir, int] = {}
        self._of_user: dict[int, str] = {}
        """Metrics that the user chose for charts, by their number."""
        self._names: Sequence[str] | None = None
        """All metrics when the charts were laid out."""
        self._seen = -1
        """Version of the curves that were drawn last."""
        self._drawn_at = 0.0
        self._patience: Timer | None = None

    def on_mount(self) -> None:
        self._of_user = {place: name for place, name in enumerate(self._memory.view.beside, start=1) if name}
        for chart in self._charts:
            chart.panel.can_focus, chart.panel.is_fixed = True, False
            for name in ("drawn", "cursor", "has_focus"):
                self.watch(chart.panel, name, self._show_legend, init=False)
        self._feed.start()
        self.set_interval(TICK_S, self._tick)

    def on_unmount(self) -> None:
        self._feed.close()

    def on_resize(self) -> None:
        self._arrange()

    def show(
        self, runs: Sequence[RunInfo], places: Mapping[RunDir, int], groups: Mapping[int, str], objective: str
    ) -> None:
        """Draws the curves of these runs at their places; those that are drawn already are not read anew.

        Runs of the same place are drawn as their mean and a band, called as `groups` says.
        """
        if objective != self._objective:
            self._objective, self._names = objective, None
            self._of_user.pop(0, None)
        self._source.groups = groups
        places = {info.directory: places[info.directory] for info in runs}
        if places != self._places:
            come = places.keys() - self._places.keys()
            self._places, self._drawn_at = places, 0.0
            self.close_cursor()
            self._feed.show(runs, places)
            self._source.is_patient = True
            if self._patience is not None:
                self._patience.stop()
            self._patience = self.set_timer(PATIENCE_S, self._explain)
            if come:
                # The charts stay as they are until the next look, when most runs are read.
                return
            self.redraw()
        elif self._names is None:
            self.update()
        else:
            self._feed.note_infos(runs)

    def _explain(self) -> None:
        self._source.is_patient = False
        self.redraw()

    def _tick(self) -> None:
        waits = not self._source.is_reading and time.monotonic() - self._drawn_at < RUN_S * len(self._places)
        if self.display and self.screen.is_current and self._feed.version != self._seen and not waits:
            self._drawn_at = time.monotonic()
            self.update()

    def update(self) -> None:
        """Draws what is new."""
        self._seen = self._feed.version
        if self._source.names() != self._names:
            self._arrange()
        super(ChosenCharts, self).update()

    def _arrange(self) -> None:
        """Lays out as many charts as there are metrics, and room."""
        grid = self.query_one("#grid", Container)
        self._names = names = self._source.names()
        columns, rows = grid_size(min(MOST, len(names)), self.size.width, self.size.height - 1)
        grid.styles.grid_size_columns, grid.styles.grid_size_rows = columns, rows
        of_interest = self._of_interest(names)
        shown = [self._of_user.get(place) for place in range(columns * rows)]
        taken = {name for name in shown if name in names}
        rest = (name for name in of_interest if name not in taken)
        shown = [name if name in names else next(rest, None) for name in shown]
        for place, (chart, name) in enumerate(zip_longest(self._charts, shown[:MOST])):
            # Without a metric the first one says what is awaited.
            chart.display = name is not None or not place
            if name is not None:
                chart.panel.change(metric=name)

    def _of_interest(self, names: Sequence[str]) -> Iterator[str]:
        """Yields the metrics, the objective first."""
        first = first_choice(names)
        wanted = (self._objective, first, second_choice(names, first), *sorted(ordered(names), key=is_bookkeeping))
        return iter(dict.fromkeys(name for name in wanted if name in names))

    def choose(self, panel: ChartPanel, name: str) -> None:
        """Shows a metric that the user chose."""
        self._of_user[self.panels.index(panel)] = name
        self._memory.keep(beside=tuple(self._of_user.get(place, "") for place in range(1, MOST)))
        self._arrange()

    def _show_legend(self) -> None:
        """Says whose curves these are or, with a cursor, their values there; and how they are drawn."""
        panel = next((one for one in self.panels if one.cursor is not None), self.active)
        chart, options, width = panel.drawn, panel.options, self.size.width - 2
        shares = [run.progress for run in self._feed.runs if run.progress is not None]
        settings = [
            f"reading {format_percent(sum(shares) / len(shares))}" if shares else "",
            *(["paused", "v: resume"] if panel.cursor is not None else []),
            sight_words(chart, options),
            *clipped_words(chart, options),
            "logarithmic" if options.log else "",
            f"by {options.axis}",
            smoothing_words(options),
        ]
        dark = self.app.current_theme.dark
        legend = self._source.legend(chart, options, panel.cursor, dark=dark, width=width)
        line = line_of(legend, [one for one in settings if one], width)
        self.query_one("#legends", Static).update(line, layout=False)

    def action_chart(self, what: str) -> None:
        self.do(what)

    def action_back(self) -> None:
        if not self.close_cursor():
            self.post_message(self.Left())

    @on(GridChart.Selected)
    def _focus_clicked(self, event: GridChart.Selected) -> None:
        event.chart.panel.focus()
