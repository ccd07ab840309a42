"""The Run screen's two charts, and what its keys do with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.content import Content
from textual.screen import Screen

from trainers.contract.metrics import TEST_ACCURACY
from tuiapp.screens.chart_keys import view_actions
from tuiapp.screens.metric_list import NOTHING, MetricList
from tuiapp.state.metrics import available, metric
from tuiapp.state.run_facts import RunFacts
from tuiapp.widgets.loss_chart import LossChart

SECOND_WIDTH, SECOND_HEIGHT = 160, 45
"""From this size on the second chart is there without being asked for."""


class RunCharts:
    """Lets keys act on the chart that has the focus, or on both where they show the same part of the run.

    Args:
        screen: Where they are: `#loss`, and `#second`, which is there when asked for or where there is much room.
        arrange: Gives the second chart its room, or takes it.
    """

    def __init__(self, screen: Screen[None], arrange: Callable[[], None]) -> None:
        self._screen, self._arrange = screen, arrange
        self._asked: bool | None = None
        """Whether the second chart was asked for; None while nobody has said."""
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
        """The one that is always there."""
        return self._screen.query_one("#loss", LossChart)

    @property
    def second(self) -> LossChart:
        """The one beside it."""
        return self._screen.query_one("#second", LossChart)

    @property
    def active(self) -> LossChart:
        """The one that keys act on."""
        return self.second if self.second.has_focus and self.wants_second else self.main

    @property
    def wants_second(self) -> bool:
        """Whether the second chart shall be there, as far as there is room."""
        if self._asked is not None:
            return self._asked
        size = self._screen.size
        return size.width >= SECOND_WIDTH and size.height >= SECOND_HEIGHT

    def begin(self) -> None:
        """Keep both on the same part of the run, whichever is zoomed or panned by key or mouse."""
        for one, other in ((self.main, self.second), (self.second, self.main)):
            self._screen.watch(one, "window", partial(setattr, other, "window"), init=False)
        self.second.metric = TEST_ACCURACY
        self.show_titles()

    def do(self, what: str) -> None:
        """Do what a key says."""
        self._does[what]()
        self.show_titles()

    def show(self, state: RunFacts) -> None:
        """Show a run."""
        self.main.show(state)
        self.second.show(state)

    def show_titles(self) -> None:
        """Say in the frames what is drawn."""
        for key, chart in (("1", self.main), ("M", self.second)):
            title = f"{key} {metric(chart.metric).label}"
            if str(chart.border_title) != title:
                chart.border_title = Content(title)

    def choose_rank(self, rank: int | None) -> None:
        """Draw one rank alone, or over the others; None for all."""
        self.main.rank = self.second.rank = rank

    def _choose_metric(self) -> None:
        """List the run's metrics for the chart that has the focus."""
        chart = self.active

        def draw(name: str | None) -> None:
            if name:
                chart.metric = name
                self.show_titles()

        self._screen.app.push_screen(MetricList(available(self.main.state), chart.metric, title="Metric"), draw)

    def _choose_second(self) -> None:
        """List the run's metrics for the second chart, and the choice to have none."""

        def draw(name: str | None) -> None:
            if name is not None:
                self._asked = name != NOTHING
                self.second.metric = name or self.second.metric
                self.show_titles()
                self._arrange()

        drawn = self.second.metric if self.wants_second else ""
        names = available(self.main.state)
        asked = MetricList(names, drawn, title="Metric of the second chart", nothing="no second chart")
        self._screen.app.push_screen(asked, draw)

    def _toggle_log(self) -> None:
        self.active.log_scale = not self.active.log_scale

    def _smooth(self, by: int) -> None:
        for chart in (self.main, self.second):
            chart.change_smoothing(by)

    def _toggle_time(self) -> None:
        by_time = not self.main.by_time
        self.main.by_time = self.second.by_time = by_time
