"""The charts of the Runs screen: the objective and what is of interest beside it, with a curve per run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.screens.chart_grid import ChartGrid, Layout, chart_keys
from tuiapp.screens.chart_sources import ComparisonSource
from tuiapp.screens.workspace import Charted
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.known_metrics import first_choice, is_bookkeeping, ordered, second_choice
from tuiapp.trainers.state.text import format_percent, plural
from tuiapp.view.chart_words import PAUSED, setting_words
from tuiapp.view.grid import grid_size
from tuiapp.widgets.chart_legend import line_of
from tuiapp.widgets.grid_chart import GridChart

MOST = 4
"""Charts at once."""

TICK_S = 0.25
"""Between two looks at what was read."""

RUN_S = 0.1
"""Between two drawings of live runs, for each run: many curves cost more."""

PATIENCE_S = 0.5
"""Until an empty chart is explained."""


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
        self._of_user = {place: name for place, name in enumerate(beside, start=1) if name}
        """Metrics that the user chose for charts, by their number."""
        self._seen = -1
        """Version of the curves that were drawn last."""
        self._drawn_at = 0.0
        self._patience: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="legends", markup=False)
        yield self.grid

    def _new(self, place: int) -> GridChart:
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
        """Returns the user's metrics at their places, and between them what is of interest."""
        columns, rows = grid_size(min(MOST, len(names)), size.width, size.height)
        wanted = [self._of_user.get(place) for place in range(min(MOST, columns * rows))]
        rest = (name for name in self._of_interest(names) if name not in wanted)
        return Layout([name if name in names else next(rest, None) for name in wanted], columns, rows)

    def _of_interest(self, names: Sequence[str]) -> Iterator[str]:
        """Yields the metrics, the objective first."""
        first = first_choice(names)
        wanted = (self._objective, first, second_choice(names, first), *sorted(ordered(names), key=is_bookkeeping))
        return iter(dict.fromkeys(name for name in wanted if name in names))

    @on(ChartGrid.MetricChosen)
    def _take(self, event: ChartGrid.MetricChosen) -> None:
        """Shows a metric that the user chose."""
        self._of_user[event.place] = event.name
        self.grid.memory.keep(beside=tuple(self._of_user.get(place, "") for place in range(1, MOST)))
        self.grid.lay_out()

    def _show_legend(self) -> None:
        """Says whose curves these are or, with a cursor, their values there; and how they are drawn."""
        panel = next((one for one in self.grid.panels if one.cursor is not None), self.grid.active)
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
