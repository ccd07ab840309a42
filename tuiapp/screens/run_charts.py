"""The Run screen's two charts and their keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.content import Content
from textual.screen import Screen

from trainers.contract.metrics import TEST_ACCURACY
from trainers.state.known_metrics import first_choice, metric, second_choice
from trainers.state.run_state import RunState
from tuiapp.screens.arrangement import LEAST_HEIGHT, WIDE
from tuiapp.screens.chart_memory import ChartMemory
from tuiapp.screens.metric_list import NOTHING, MetricList
from tuiapp.widgets.loss_chart import LossChart
from tuiapp.widgets.zoomable import next_smoothing, view_actions


class RunCharts:
    """Applies keys to the focused chart, or to both if they share the range; `arrange` shows or hides `#second`."""

    def __init__(self, screen: Screen[None], arrange: Callable[[], None]) -> None:
        self._screen, self._arrange = screen, arrange
        self._memory = ChartMemory(screen)
        self._asked: bool | None = None
        """None until the user shows or hides the second chart."""
        self._chosen: set[LossChart] = set()
        """Charts whose metric the user chose."""
        self._names = 0
        """Number of metrics when the others were given one."""
        self._does: dict[str, Callable[[], None]] = {
            "metric": self._choose_metric,
            "second": self._choose_second,
            "log": self._toggle_log,
            "smoother": lambda: self._smooth(1),
            "rougher": lambda: self._smooth(-1),
            "time": self._toggle_time,
            **view_actions(lambda: self.active),
        }

    @property
    def main(self) -> LossChart:
        return self._screen.query_one("#loss", LossChart)

    @property
    def second(self) -> LossChart:
        return self._screen.query_one("#second", LossChart)

    @property
    def active(self) -> LossChart:
        return self.second if self.second.has_focus and self.wants_second else self.main

    @property
    def wants_second(self) -> bool:
        if self._asked is not None:
            return self._asked
        size = self._screen.size
        return size.width >= WIDE and size.height >= LEAST_HEIGHT

    def begin(self) -> None:
        """Gives the charts the settings of the last time, and keeps the visible range of both in step."""
        view = self._memory.view
        self.main.log_scale = view.log
        for chart in (self.main, self.second):
            chart.smoothing, chart.axis = view.smoothing, view.axis
        self._memory.begin()
        for one, other in ((self.main, self.second), (self.second, self.main)):
            self._screen.watch(one, "window", partial(setattr, other, "window"), init=False)
        self.second.metric = TEST_ACCURACY
        self.show_titles()

    def close_cursor(self) -> bool:
        """Ends reading values; returns whether a chart had a cursor."""
        read = [chart for chart in (self.main, self.second) if chart.cursor is not None]
        for chart in read:
            chart.cursor = None
        return bool(read)

    def do(self, what: str) -> None:
        self._does[what]()
        self.show_titles()

    def show(self, state: RunState) -> None:
        if len(state.curves.names) != self._names:
            self._names = len(state.curves.names)
            self._choose_first(state)
        self.main.show(state)
        self.second.show(state)

    def _choose_first(self, state: RunState) -> None:
        """Shows the metrics of most interest until the user chooses."""
        names = state.curves.names
        if self.main not in self._chosen:
            kept = self._memory.view.metric
            self.main.metric = kept if kept in names else first_choice(names)
        if self.second not in self._chosen:
            kept = self._memory.view.second
            # A trainer with epochs evaluates after them.
            expected = [TEST_ACCURACY, *names] if state.steps_per_epoch else names
            is_other = kept in names and kept != self.main.metric
            self.second.metric = kept if is_other else second_choice(expected, self.main.metric)
        self.show_titles()

    def draw(self, name: str, chart: LossChart) -> None:
        """Shows a metric that the user chose."""
        self._chosen.add(chart)
        chart.metric = name
        self._memory.keep(**{"metric" if chart is self.main else "second": name})
        self.show_titles()

    def show_titles(self) -> None:
        for key, chart in (("1", self.main), ("M", self.second)):
            title = f"{key} {metric(chart.metric).label}"
            if str(chart.border_title) != title:
                chart.border_title = Content(title)

    def choose_rank(self, rank: int | None) -> None:
        self.main.rank = self.second.rank = rank

    def _choose_metric(self) -> None:
        chart = self.active

        def draw(name: str | None) -> None:
            if name:
                self.draw(name, chart)

        self._screen.app.push_screen(MetricList(self.main.state.metrics, chart.metric, title="Metric"), draw)

    def _choose_second(self) -> None:
        def draw(name: str | None) -> None:
            if name is not None:
                self._asked = name != NOTHING
                self.draw(name or self.second.metric, self.second)
                self._arrange()

        drawn = self.second.metric if self.wants_second else ""
        names = self.main.state.metrics
        asked = MetricList(names, drawn, title="Metric of the second chart", nothing="no second chart")
        self._screen.app.push_screen(asked, draw)

    def _toggle_log(self) -> None:
        chart = self.active
        chart.log_scale = not chart.log_scale
        if chart is self.main:
            self._memory.keep(log=chart.log_scale)

    def _smooth(self, by: int) -> None:
        for chart in (self.main, self.second):
            chart.smoothing = next_smoothing(chart.smoothing, by)
        self._memory.keep(smoothing=self.main.smoothing)

    def _toggle_time(self) -> None:
        self.main.axis = self.second.axis = "step" if self.main.axis == "time" else "time"
        self._memory.keep(axis=self.main.axis)

    def close(self) -> None:
        """Writes settings that are not written yet."""
        self._memory.close()
