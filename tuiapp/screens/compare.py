"""Compare: the curves of several runs in one chart, the keys that differ, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive

from trainers.contract.metrics import LOSS
from trainers.state.curves import AXES, Axis
from trainers.state.known_metrics import first_choice, metric, ordered
from trainers.state.summary import RunInfo
from trainers.state.text import MISSING, format_percent, join_words, plural
from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.screens.chart_memory import ChartMemory
from tuiapp.screens.grid_sources import ComparisonSource
from tuiapp.screens.metric_list import MetricList
from tuiapp.screens.metrics_grid import MetricsGrid
from tuiapp.terminal.covered_screen import CoveredScreenFix
from tuiapp.view.chart import Look
from tuiapp.view.comparison import Line
from tuiapp.view.comparison_chart import build_comparison, place_words, read_out
from tuiapp.view.grid import Pages
from tuiapp.widgets.chart_legend import beyond_words
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.compare_chart import CompareChart
from tuiapp.widgets.compare_table import CompareTable
from tuiapp.widgets.plot import Plot
from tuiapp.widgets.steady_footer import SteadyFooter
from tuiapp.widgets.zoomable import next_smoothing, view_actions, view_keys

TICK_S = 0.25
"""Between two drawings of newly read events."""


class CompareScreen(CoveredScreenFix[None]):
    """One chart with a curve per run, and a table that is its legend; takes two to eight runs."""

    CSS_PATH = "compare.tcss"
    MANUAL = "runs"

    AUTO_FOCUS: ClassVar[str | None] = "CompareChart"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric", "Metric", id="compare.metric"),
        Binding("G", "grid", "Grid", tooltip="All metrics in a grid", id="compare.grid"),
        Binding("t", "axis", "Axis", id="compare.axis"),
        Binding("y", "toggle_log_scale", "Log y", id="compare.log"),
        Binding("left_square_bracket", "smooth(-1)", "Less smooth", key_display="[", id="compare.rougher", show=False),
        Binding("right_square_bracket", "smooth(1)", "Smoother", key_display="]", id="compare.smoother", show=False),
        *view_keys("compare", show=True),
        *(
            Binding(
                str(place),
                f"show_curve({place - 1})",
                f"Curve {ascii_lowercase[place - 1]} on and off",
                id=f"compare.curve-{place}",
                show=False,
            )
            for place in range(1, 9)
        ),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", id="app.help"),
        Binding("escape", "back", "Back", id="compare.back"),
        Binding("q", "app.leave", "Leave", id="app.leave-letter"),
    ]

    metric: reactive[str] = reactive(LOSS, init=False)
    axis: reactive[Axis] = reactive("step", init=False)
    log_scale: reactive[bool] = reactive(False, init=False)
    smoothing: reactive[float] = reactive(0.6, init=False)
    """Weight of the past in the moving average, in [0, 1)."""

    def __init__(self, runs: Sequence[RunInfo]) -> None:
        super().__init__()
        self._feed = CompareFeed(runs)
        self._drawn = -1
        self._drawn_size: Size | None = None
        self._does = view_actions(lambda: self.chart)
        self._hidden: set[int] = set()
        self._chosen = False
        """The user chose the metric."""
        self._grid: MetricsGrid | None = None
        self._pages = Pages()
        self._shown_in_grid = -1
        """Version of the curves in it."""
        self._memory = ChartMemory(self)
        view = self._memory.view
        self.set_reactive(CompareScreen.axis, view.axis)
        self.set_reactive(CompareScreen.log_scale, view.log)
        self.set_reactive(CompareScreen.smoothing, view.smoothing)
        self._patience = 2
        """Ticks before an empty chart is explained."""

    @property
    def chart(self) -> CompareChart:
        return self.query_one(CompareChart)

    def compose(self) -> ComposeResult:
        yield CompareChart()
        yield CompareTable()
        yield SteadyFooter("chart('in')", "toggle_log_scale")

    def on_mount(self) -> None:
        self.chart.axis = self.axis
        self._memory.begin()
        for name in ("window", "every"):
            self.watch(self.chart, name, self._draw, init=False)
        self.watch(self.chart, "cursor", self._move_cursor, init=False)
        self._feed.start()
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw())
        self.set_interval(TICK_S, self._draw_if_changed)
        self.call_after_refresh(self._draw)

    def on_unmount(self) -> None:
        self._memory.close()
        self._feed.close()

    @property
    def _is_reading(self) -> bool:
        return any(run.progress is not None for run in self._feed.runs)

    def _draw_if_changed(self) -> None:
        if self._grid is not None:
            if self._feed.version != self._shown_in_grid:
                self._shown_in_grid = self._feed.version
                self._grid.update()
            return
        self._patience -= 1
        if self._patience == 0:
            self._drawn = -1
        # The curves are frozen while a cursor reads values. The plot's size also changes with the table's.
        grown = self._feed.version != self._drawn and self.chart.cursor is None
        if grown or self._drawn_size != self.query_one(Plot).size:
            self._draw()

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        self._drawn = self._feed.version
        plot, runs = self.query_one(Plot), self._feed.runs
        if not self._chosen:
            with self._feed.lock:
                self.set_reactive(CompareScreen.metric, self._first_choice())
        look = Look(self.metric, self.axis, self.smoothing, self.log_scale, self.chart.window, self.chart.every)
        shown = [(ascii_lowercase[n], n, run.curves) for n, run in enumerate(runs) if n not in self._hidden]
        with self._feed.lock:
            chart = build_comparison(shown, look, columns=2 * plot.columns, rows=plot.rows)
        # Small journals are read at once: no notice needs to replace the chart.
        empty = not chart.curves and (self._patience <= 0 or not self._is_reading)
        if self.chart.show(chart, self._why_empty() if empty else ""):
            self.call_after_refresh(self._draw_if_changed)
        self._drawn_size = plot.size
        self._show_words()

    def _move_cursor(self) -> None:
        if self.chart.cursor is None:
            self._draw()
        else:
            self.chart.show_cursor()
            self._show_words()

    def _show_words(self) -> None:
        runs, chart, reading = self._feed.runs, self.chart.drawn, None
        label = metric(self.metric).label
        heading = [label, *self._settings()]
        if self.chart.cursor is not None:
            values = read_out(chart, self.chart.cursor, self.metric)
            here, end = (place_words(x, self.axis) for x in (chart.x_at(self.chart.cursor), chart.extent[1]))
            # Padded to its widest text so that the columns beside it do not move.
            reading = Line(here.ljust(len(end)), tuple(values.get(place, MISSING) for place in range(len(runs))))
            heading = [label, here, "paused", "v: resume"]
        title = f"Compare {plural(len(runs), 'run')}"
        words = Content.assemble((title, "bold $text-primary"), f"  {heading[0]}  ", (join_words(heading[1:]), MUTED))
        self.chart.show_heading(words)
        table = self.query_one(CompareTable)
        table.show([run.info for run in runs], [run.progress for run in runs], self._hidden, reading)

    def _why_empty(self) -> str:
        if self._is_reading:
            return "reading …"
        if len(self._hidden) == len(self._feed.runs):
            return "all curves are hidden: the keys 1, 2, … show them"
        if self.log_scale:
            return f"no {metric(self.metric).label} above 0 for a logarithmic axis: y makes it linear"
        if self.chart.window is not None:
            return "no data in this range: 0 shows the whole runs"
        by_epoch = " by epoch" * (self.axis == "epoch")
        return f"none of these runs has reported {metric(self.metric).label}{by_epoch}: m chooses another metric"

    def _settings(self) -> list[str]:
        reading = [run.progress for run in self._feed.runs if run.progress is not None]
        read = (
            f"reading {plural(len(reading), 'run')}, {format_percent(sum(reading) / len(reading))}" if reading else ""
        )
        smoothed = f"smoothing {self.smoothing:g}" if self.smoothing else "not smoothed"
        return [
            f"showing {100 * self.chart.share_in_sight:.3g} %" if self.chart.window else "",
            f"by {self.axis}",
            "" if metric(self.metric).held_out else smoothed,
            "logarithmic" if self.log_scale else "linear",
            *beyond_words(self.chart.drawn, self.metric, every=self.chart.every),
            read,
            *(
                f"{ascii_lowercase[place]}: {run.curves.gaps.short}"
                for place, run in enumerate(self._feed.runs)
                if place not in self._hidden and run.curves.gaps.short
            ),
        ]

    def watch_metric(self) -> None:
        self.chart.cursor = None
        self._draw()

    def watch_axis(self, axis: Axis) -> None:
        self.chart.axis = axis
        self.chart.window = self.chart.cursor = None
        self._draw()

    def watch_log_scale(self) -> None:
        self._draw()

    def watch_smoothing(self) -> None:
        self._draw()

    def action_chart(self, what: str) -> None:
        self._does[what]()

    def action_metric(self) -> None:
        with self._feed.lock:
            names = ordered(self._names())

        def draw(name: str | None) -> None:
            if name:
                self._chosen, self.metric = True, name
                self._memory.keep(metric=name)

        self.app.push_screen(MetricList(names, self.metric, title="Metric"), draw)

    def _first_choice(self) -> str:
        names, kept = self._names(), self._memory.view.metric
        return kept if kept in names else first_choice(names)

    def _names(self) -> dict[str, None]:
        """Returns the metrics of all runs; the loss before any. The feed's lock must be held."""
        return {name: None for run in self._feed.runs for name in run.curves.names} or {LOSS: None}

    def action_grid(self) -> None:
        look = Look(self.metric, self.axis, self.smoothing, self.log_scale)
        self._grid = MetricsGrid(ComparisonSource(self._feed, self._hidden), look, self._pages)
        self.app.clear_notifications()
        self.app.push_screen(self._grid)

    def on_screen_resume(self) -> None:
        self._grid = None

    def action_axis(self) -> None:
        self.axis = AXES[(AXES.index(self.axis) + 1) % len(AXES)]
        if self.axis != "epoch":
            # Not every run has epochs.
            self._memory.keep(axis=self.axis)

    def action_toggle_log_scale(self) -> None:
        self.log_scale = not self.log_scale
        self._memory.keep(log=self.log_scale)

    def action_smooth(self, by: int) -> None:
        self.smoothing = next_smoothing(self.smoothing, by)
        self._memory.keep(smoothing=self.smoothing)

    def action_show_curve(self, place: int) -> None:
        if place < len(self._feed.runs):
            self._hidden ^= {place}
            self._draw()

    def action_back(self) -> None:
        """Closes the cursor, else the screen."""
        if self.chart.cursor is not None:
            self.chart.cursor = None
        elif len(self.app.screen_stack) > 1:
            self.dismiss()
