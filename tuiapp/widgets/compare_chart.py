"""The curves of several runs in one chart, under a heading that names them."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from tuiapp.view.chart import Chart
from tuiapp.widgets.plot import Plot
from tuiapp.widgets.zoomable import Zoomable


class CompareChart(Zoomable):
    DEFAULT_CSS = """
    CompareChart {
        height: 1fr;

        #heading {
            height: 1;
            padding: 0 1;
            background: $panel;
            text-wrap: nowrap;
            text-overflow: ellipsis;
        }
        &:focus #heading { border-left: outer $primary; padding: 0 1 0 0; }
        Plot { margin: 0 1; background: $background; }
    }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="instead", markup=False)
        yield Plot(id="plot")

    def on_mount(self) -> None:
        self._width = self.size.width

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._width:
            self._width, self.cursor = event.size.width, None

    def show(self, chart: Chart, instead: str) -> bool:
        """Returns whether the plot is resized at the next layout; `instead` is shown in place of missing curves."""
        self.drawn = chart
        comes = self.has_class("-empty") and not instead
        self.explain(instead)
        if not instead and chart.curves and self.plot.size.area:
            self.plot.show(chart, self.cursor)
        return comes

    def show_heading(self, words: Content) -> None:
        self.query_one("#heading", Static).update(words, layout=False)
