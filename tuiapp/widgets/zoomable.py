"""A chart that keys and mouse zoom, pan and read out at a cursor."""

from __future__ import annotations

import numpy as np
from textual import on
from textual.containers import Vertical
from textual.reactive import reactive

from tuiapp.state.chart import Chart
from tuiapp.state.window import Window, panned, zoomed
from tuiapp.widgets.plot import Plot

PAN = 0.2
"""Fraction of the visible range that a key pans by."""


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
