"""A chart that keys and mouse zoom, pan and read out at a cursor; the keys are the same on every screen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.reactive import reactive

from tuiapp.state.axes import Window, panned, zoomed
from tuiapp.state.chart import Chart
from tuiapp.widgets.plot import Plot

PAN = 0.2
"""Fraction of the visible range that a key pans by."""

FAR_CELLS = 10
"""Cells that shift moves the cursor by."""


class Zoomable(Vertical, can_focus=True):
    """A `Plot` with a visible range; subclasses draw, keep `_chart`, and redraw as `window` or `cursor` change."""

    window: reactive[Window | None] = reactive(None)
    """The visible range of the x axis; None for all."""
    cursor: reactive[int | None] = reactive(None)
    """The column of dots whose values are shown, which freezes the chart; None for no cursor."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._chart = Chart()

    @property
    def least_span(self) -> float:
        """Smallest visible range, in the x axis's unit."""
        raise NotImplementedError

    @property
    def share_in_sight(self) -> float:
        """Visible fraction of the whole range, from 0 to 1."""
        (left, right), (first, last) = self._chart.x_range, self._chart.extent
        return (min(right, last) - left) / (last - first)

    def zoom(self, by: int, column: int | None = None) -> None:
        """Zooms in (1) or out (-1) around a column of dots, by default the cursor's, or the newest."""
        column = self.cursor if column is None else column
        self.window = zoomed(
            self.window,
            by,
            x_range=self._chart.x_range,
            extent=self._chart.extent,
            place=None if column is None else self._chart.x_at(column),
            least=self.least_span,
        )

    def pan(self, by: float) -> None:
        """Pans by a fraction of the visible range; below 0 for earlier."""
        self.window = panned(self.window, by, self._chart.extent)

    def toggle_cursor(self) -> None:
        """Shows the cursor at the newest point of any curve, or removes it."""
        if self.cursor is not None:
            self.cursor = None
        elif self._chart.curves:
            known = [np.flatnonzero(~np.isnan(curve.middle)) for curve in self._chart.curves]
            self.cursor = max((int(places[-1]) for places in known if len(places)), default=self._chart.columns - 1)

    def move(self, by: int) -> None:
        """Moves the cursor by cells, or pans without one; below 0 to the left."""
        if self.cursor is None:
            self.pan(PAN if by > 0 else -PAN)
        else:
            self.cursor = min(self._chart.columns - 1, max(0, self.cursor + 2 * by))

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
        self.pan(-event.cells / self.query_one(Plot).columns)


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
        Binding("0", "chart('whole')", "Whole run", id=f"{screen}.whole-run", show=False),
        Binding("left", "chart('left')", "Earlier", id=f"{screen}.earlier", show=False),
        Binding("right", "chart('right')", "Later", id=f"{screen}.later", show=False),
        Binding("shift+left", "chart('far_left')", "Much earlier", id=f"{screen}.much-earlier", show=False),
        Binding("shift+right", "chart('far_right')", "Much later", id=f"{screen}.much-later", show=False),
    ]


def view_actions(active: Callable[[], Zoomable]) -> dict[str, Callable[[], None]]:
    """Returns the function of each argument of the action `chart`, for the chart that `active` returns."""

    def whole() -> None:
        active().window = None

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
