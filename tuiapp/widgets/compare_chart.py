"""The curves of several runs in one chart, under a heading that names them."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from tuiapp.state.chart import Chart
from tuiapp.state.curves import Axis
from tuiapp.widgets.plot import Plot
from tuiapp.widgets.zoomable import Zoomable

LEAST_SPAN: dict[Axis, float] = {"step": 4.0, "time": 0.5, "epoch": 0.05}
"""Smallest visible range, in steps, seconds or epochs."""


class CompareChart(Zoomable):
    DEFAULT_CSS = """
    CompareChart {
        height: 1fr;
        background: $background;

        #heading {
            height: 1;
            padding: 0 1;
            background: $panel;
            text-wrap: nowrap;
            text-overflow: ellipsis;
        }
        &:focus #heading { border-left: outer $primary; padding: 0 1 0 0; }
        #instead { height: 1fr; display: none; content-align: center middle; color: $text-muted; }
        Plot { margin: 0 1; background: $background; }
        &.-empty Plot { display: none; }
        &.-empty #instead { display: block; }
    }
    """

    axis: Axis = "step"

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="instead", markup=False)
        yield Plot(id="plot")

    @property
    def least_span(self) -> float:
        return LEAST_SPAN[self.axis]

    @property
    def drawn(self) -> Chart:
        return self._chart

    def on_mount(self) -> None:
        self._width = self.size.width

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._width:
            self._width, self.cursor = event.size.width, None

    def show(self, chart: Chart, instead: str) -> bool:
        """Returns whether the plot is resized at the next layout; `instead` is shown in place of missing curves."""
        self._chart = chart
        comes = self.has_class("-empty") and not instead
        self.set_class(bool(instead), "-empty")
        plot = self.query_one(Plot)
        if instead:
            self.query_one("#instead", Static).update(instead)
        elif chart.curves and plot.size.area:
            plot.show(chart, self.cursor)
        return comes

    def show_cursor(self) -> None:
        if self._chart.curves:
            self.query_one(Plot).show(self._chart, self.cursor)

    def show_heading(self, words: Content) -> None:
        self.query_one("#heading", Static).update(words, layout=False)
