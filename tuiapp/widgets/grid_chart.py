"""One of several charts on a page: a line with its metric and latest value, and the curves."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from tuiapp.view.axes import Window
from tuiapp.view.chart import Chart
from tuiapp.widgets.plot import Plot
from tuiapp.widgets.zoomable import Zoomable


class GridChart(Zoomable, can_focus=False):
    """A chart that can be selected; large, it has a legend and can be zoomed and read out."""

    DEFAULT_CSS = """
    GridChart {
        #title { height: 1; padding: 0 1 0 0; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
        #legend { height: 1; display: none; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
        Plot { padding: 0; background: $background; }
        &.-large #legend { display: block; }
        &.-selected #title { background: $primary 40%; text-style: bold; }
    }
    """

    large: reactive[bool] = reactive(False, toggle_class="-large")

    @dataclass
    class Selected(Message):
        """The user clicked it."""

        chart: GridChart
        twice: bool

    @dataclass
    class Stale(Message):
        """Its size changed: it must be drawn anew."""

        chart: GridChart

    def __init__(self) -> None:
        super().__init__()
        self.name_shown = ""
        """The metric's name in the journal."""
        self._title = ("", "")
        self._shown: Content | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="legend", markup=False)
        yield Static(id="instead", markup=False)
        yield Plot()

    @property
    def selected(self) -> bool:
        return self.has_class("-selected")

    def validate_cursor(self, cursor: int | None) -> int | None:
        return cursor if self.large else None

    def validate_window(self, window: Window | None) -> Window | None:
        return window if self.large else None

    def show(self, chart: Chart, name: str, latest: str, instead: str) -> None:
        """Shows a chart under a metric's name and latest value; `instead` is shown in place of missing curves."""
        self.drawn = chart
        self.explain(instead if chart.is_empty else "")
        if not chart.is_empty and self.plot.size:
            self.plot.show(chart, self.cursor)
        self._title = (name, latest)
        self._show_title()

    def select(self, selected: bool) -> None:
        if selected != self.selected:
            self.set_class(selected, "-selected")
            self._show_title()

    def _show_title(self) -> None:
        name, latest = self._title
        room = self.size.width - 3 - len(latest)
        title = Content(f"{'▸' if self.selected else ' '} {name}").truncate(max(1, room), ellipsis=True, pad=True)
        title = Content.assemble(title, " ", latest)
        if self._shown is None or not title.is_same(self._shown):
            self._shown = title
            self.query_one("#title", Static).update(title, layout=False)

    def show_legend(self, legend: Content) -> None:
        self.query_one("#legend", Static).update(legend, layout=False)

    @on(Plot.Resized)
    def _tell(self, event: Plot.Resized) -> None:
        event.stop()
        self.post_message(self.Stale(self))

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Selected(self, event.chain > 1))
