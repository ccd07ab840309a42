"""The curves of several runs over each other, under a line that says what they are."""

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
"""Steps, seconds or epochs that are in sight at least."""


class CompareChart(Zoomable):
    """Shows what it is given; where there are no curves, it says why."""

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
    """What the lower axis counts."""

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="instead", markup=False)
        yield Plot(id="plot")

    @property
    def least_span(self) -> float:
        return LEAST_SPAN[self.axis]

    @property
    def drawn(self) -> Chart:
        """What was drawn last."""
        return self._chart

    def on_mount(self) -> None:
        """Nobody has seen the columns yet."""
        self._width = self.size.width

    def on_resize(self, event: events.Resize) -> None:
        """Of other columns than those that were read nothing is known."""
        if event.size.width != self._width:
            self._width, self.cursor = event.size.width, None

    def show(self, chart: Chart, instead: str) -> bool:
        """Draw curves; whether the plot gets its size with the next layout only.

        Args:
            chart: With two values per column of cells.
            instead: What stands in the place of curves that are not there; "" to draw.
        """
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
        """Draw the line at which values are read."""
        if self._chart.curves:
            self.query_one(Plot).show(self._chart, self.cursor)

    def show_heading(self, words: Content) -> None:
        """Say what is drawn."""
        self.query_one("#heading", Static).update(words, layout=False)
