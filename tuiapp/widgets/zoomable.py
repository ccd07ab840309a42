"""A chart that keys and mouse zoom, pan and read out at a cursor; the keys are the same on every screen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.reactive import reactive
from textual.widgets import Static

from trainers.state.curves import Axis
from trainers.state.series import SMOOTHINGS
from tuiapp.view.axes import Window, panned, zoomed
from tuiapp.view.chart import Chart
from tuiapp.widgets.plot import Plot

PAN = 0.2
"""Fraction of the visible range that a key pans by."""

FAR_CELLS = 10
"""Cells that shift moves the cursor by."""

LEAST_SPAN: dict[Axis, float] = {"step": 4.0, "time": 0.5, "epoch": 0.05}
"""Smallest visible range, in steps, seconds or epochs."""


class Zoomable(Vertical, can_focus=True):
    """A `Plot` with a visible range, below other lines; subclasses draw, and redraw as `window` or `cursor` change."""

    DEFAULT_CSS = """
    Zoomable {
        background: $background;

        #instead { height: 1fr; display: none; content-align: center middle; color: $text-muted; }
        &.-empty Plot { display: none; }
        &.-empty #instead { display: block; }
    }
    """

    window: reactive[Window | None] = reactive(None)
    """The visible range of the x axis; None for all."""
    cursor: reactive[int | None] = reactive(None)
    """The column of dots whose values are shown, which freezes the chart; None for no cursor."""

    every: reactive[bool] = reactive(False)
    """Whether the axis of values covers the first ones, too, however far they are from the others."""

    axis: reactive[Axis] = reactive("step")

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.drawn = Chart()

    @property
    def plot(self) -> Plot:
        return self.query_one(Plot)

    def explain(self, why: str) -> None:
        """Shows a text in place of the curves, or with "" the curves."""
        self.set_class(bool(why), "-empty")
        if why:
            self.query_one("#instead", Static).update(why)

    def show_cursor(self) -> None:
        if not self.drawn.is_empty:
            self.plot.show(self.drawn, self.cursor)

    @property
    def share_in_sight(self) -> float:
        """Visible fraction of the whole range, from 0 to 1."""
        (left, right), (first, last) = self.drawn.x_range, self.drawn.extent
        return (min(right, last) - left) / (last - first)

    def zoom(self, by: int, column: int | None = None) -> None:
        """Zooms in (1) or out (-1) around a column of dots, by default the cursor's, or the newest."""
        column = self.cursor if column is None else column
        self.window = zoomed(
            self.window,
            by,
            x_range=self.drawn.x_range,
            extent=self.drawn.extent,
            place=None if column is None else self.drawn.x_at(column),
            least=LEAST_SPAN[self.axis],
        )

    def pan(self, by: float) -> None:
        """Pans by a fraction of the visible range; below 0 for earlier."""
        self.window = panned(self.window, by, self.drawn.extent)

    def toggle_cursor(self) -> None:
        """Shows the cursor at the newest point of any curve, or removes it."""
        if self.cursor is not None:
            self.cursor = None
        elif self.drawn.curves:
            known = [np.flatnonzero(~np.isnan(curve.middle)) for curve in self.drawn.curves]
            self.cursor = max((int(places[-1]) for places in known if len(places)), default=self.drawn.columns - 1)

    def move(self, by: int) -> None:
        """Moves the cursor by cells, or pans without one; below 0 to the left."""
        if self.cursor is None:
            self.pan(PAN if by > 0 else -PAN)
        else:
            self.cursor = min(self.drawn.columns - 1, max(0, self.cursor + 2 * by))

    @on(Plot.Picked)
    def _pick(self, event: Plot.Picked) -> None:
        event.stop()
        self.cursor = None if self.cursor is not None and self.cursor // 2 == event.column // 2 else event.column

    @on(Plot.Scrolled)
    def _scroll(self, event: Plot.Scrolled) -> None:
        event.stop()
        self.zoom(event.by, event.column)

    @on(Plot.Dragged)
    def _drag(self, event: Plot.Dragged) -> None:
        event.stop()
        self.pan(-event.cells / self.plot.columns)


def next_smoothing(weight: float, by: int) -> float:
    """Returns the weight so many places further in `SMOOTHINGS`."""
    return SMOOTHINGS[min(len(SMOOTHINGS) - 1, max(0, SMOOTHINGS.index(weight) + by))]


def view_keys(screen: str, *, show: bool) -> list[BindingType]:
    """Returns bindings of the action `chart`; `screen` prefixes their ids, `show` puts the main ones in the footer."""
    return [
        Binding("v", "chart('cursor')", "Values", tooltip="Read values", id=f"{screen}.read-values", show=show),
        Binding(
            "plus,equals_sign",
            "chart('in')",
            "Zoom",
            tooltip="Zoom in",
            id=f"{screen}.zoom-in",
            key_display="+",
            show=show,
        ),
        Binding("minus", "chart('out')", "Zoom out", id=f"{screen}.zoom-out", key_display="-", show=False),
        Binding("0", "chart('whole')", "Whole run, all values", id=f"{screen}.whole-run", show=False),
        Binding("left", "chart('left')", "Earlier", id=f"{screen}.earlier", show=False),
        Binding("right", "chart('right')", "Later", id=f"{screen}.later", show=False),
        Binding("shift+left", "chart('far_left')", "Much earlier", id=f"{screen}.much-earlier", show=False),
        Binding("shift+right", "chart('far_right')", "Much later", id=f"{screen}.much-later", show=False),
    ]


def view_actions(active: Callable[[], Zoomable]) -> dict[str, Callable[[], None]]:
    """Returns the function of each argument of the action `chart`, for the chart that `active` returns."""

    def whole() -> None:
        chart = active()
        if chart.window is None:
            chart.every = not chart.every
        chart.window = None

    return {
        "cursor": lambda: active().toggle_cursor(),
        "in": lambda: active().zoom(1),
        "out": lambda: active().zoom(-1),
        "whole": whole,
        "left": lambda: active().move(-1),
        "right": lambda: active().move(1),
        "far_left": lambda: active().move(-FAR_CELLS),
        "far_right": lambda: active().move(FAR_CELLS),
    }
