"""Curves between axes, drawn cell by cell; only changed cells are painted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tuiapp.terminal.ascii_filter import AsciiFilter
from tuiapp.view.chart import BAND, BOTTOM_CELLS, LEFT_CELLS, Chart, frame
from tuiapp.view.heat import LABEL_CELLS, Heat
from tuiapp.view.marks import series_color
from tuiapp.view.raster import CURSOR, EVALUATION, GAP, HEAT, NONE, RAW, Cells, first_lines, rasterize
from tuiapp.widgets.colors import BAND_COLOR, faint, heat_colors

GRID = -11
"""Ink of the faint lines at the numbers of the axis of values, where nothing else is drawn."""
ROW = -12
"""Ink of the label of the row at the cursor."""
GRID_DOT, GRID_CELLS = "·", 3
"""What the faint lines are made of, and how far apart that stands."""
MOST_LINES = 6


class Plot(Widget):
    """Shows a chart: its `frame`, and the curves that `rasterize` draws."""

    DEFAULT_CSS = """
    Plot { width: 1fr; height: 1fr; }
    """

    ALLOW_SELECT: ClassVar[bool] = False

    @dataclass
    class Picked(Message):
        """The user clicked a column."""

        column: int
        """The column, in dots."""

    @dataclass
    class Scrolled(Message):
        """The user turned the mouse wheel over the curves."""

        column: int
        by: int
        """1 for up, away from the user."""

    @dataclass
    class Dragged(Message):
        """The user dragged the curves sideways."""

        cells: int
        """Positive to the right."""

    @dataclass
    class Resized(Message):
        """The size changed, or is known for the first time: the chart must be redrawn."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cells: Cells | None = None
        self._axes: list[str] = []
        self._labels: dict[int, tuple[str, int]] = {}
        """Row of a heat map → its label and ink."""
        self._axes_of: object = None
        self._lines: Sequence[int] = ()
        """Rows of the grid."""
        self._styles: dict[int, Style] = {}
        self._held: int | None = None

    @property
    def columns(self) -> int:
        return max(2, self.size.width - LEFT_CELLS)

    @property
    def rows(self) -> int:
        return max(2, self.size.height - BOTTOM_CELLS)

    def show(self, chart: Chart, cursor: int | None = None, row: int | None = None) -> None:
        """Repaints only what changed; `cursor` is in columns of dots, two per cell, `row` a row of a heat map."""
        if not self.size:
            # Hidden: it is drawn when it gets a size.
            return
        cells = rasterize(chart, self.columns, self.rows, None if cursor is None else cursor // 2)
        theme = self.app.theme
        self._labels = _labels(chart.heat, self.rows, row) if chart.heat else {}
        axes_of = (self.size, theme, chart.x_range, chart.y_range, chart.x_ticks, chart.y_ticks, self._labels)
        old, self._cells = self._cells, cells
        if axes_of != self._axes_of or old is None or old.inks.shape != cells.inks.shape:
            self._axes_of = axes_of
            self._axes = frame(chart, self.size.width - LEFT_CELLS, self.size.height - BOTTOM_CELLS)
            ticked = [
                row for row, axis in enumerate(self._axes[: self.rows]) if axis[LEFT_CELLS - 1 : LEFT_CELLS] == "┤"
            ]
            every = max(1, -(-len(ticked) // MOST_LINES))
            self._lines = ticked[::every] if self._is_grid_faint() and chart.heat is None else ()
            self._styles.clear()
            self.refresh()
            return
        differs = (old.characters != cells.characters) | (old.inks != cells.inks)
        regions = []
        for row in np.flatnonzero(differs.any(axis=1)).tolist():
            places = np.flatnonzero(differs[row])
            left, right = int(places[0]), int(places[-1])
            regions.append(Region(LEFT_CELLS + left, row, right - left + 1, 1))
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        base = self.visual_style.rich_style
        if self._cells is None or y >= len(self._axes):
            return Strip.blank(self.size.width, base)
        axis = self._axes[y]
        muted = base + self._style(NONE)
        if y >= len(self._cells.inks):
            return Strip([Segment(axis, muted)]).adjust_cell_length(self.size.width, base)
        label, ink = self._labels.get(y, (axis[:LEFT_CELLS], NONE))
        segments = [Segment(label, base + self._style(ink)), *self._runs(y, base)]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def _is_grid_faint(self) -> bool:
        """Whether there are colours and fine dots: without them a grid would look like curves."""
        filters = self.app.get_line_filters()
        return not self.app.no_color and not any(isinstance(filter_, AsciiFilter) for filter_ in filters)

    def _runs(self, row: int, base: Style) -> Iterator[Segment]:
        assert self._cells is not None
        inks, characters = self._cells.inks[row], self._cells.characters[row]
        if row in self._lines:
            free = inks == NONE
            inks = np.where(free, np.int16(GRID), inks)
            free[np.arange(len(free)) % GRID_CELLS > 0] = False
            characters = np.where(free, np.uint32(ord(GRID_DOT)), characters)
        text = characters.astype("<u4").tobytes().decode("utf-32-le")
        stops = np.append(np.flatnonzero(inks[1:] != inks[:-1]) + 1, len(inks)).tolist()
        start = 0
        for stop in stops:
            yield Segment(text[start:stop], base + self._style(int(inks[start])))
            start = stop

    def _style(self, ink: int) -> Style:
        if ink not in self._styles:
            dark = self.app.current_theme.dark
            named = {
                BAND: BAND_COLOR,
                NONE: "#8A8A8A" if dark else "#606060",
                EVALUATION: "#FFFFFF" if dark else "#000000",
                GRID: "#3A3A3A" if dark else "#C8C8C8",
                CURSOR: "#FFFFFF" if dark else "#000000",
                GAP: "#D55E00" if dark else "#A33800",
                ROW: "#FFFFFF" if dark else "#000000",
            }
            background = None
            if ink in named:
                color = named[ink]
            elif ink >= HEAT:
                color, background = heat_colors(ink - HEAT, dark=dark)
            elif ink <= RAW:
                color = faint(series_color(RAW - ink, dark=dark), dark=dark)
            else:
                color = series_color(ink, dark=dark)
            self._styles[ink] = Style(
                color=color, bgcolor=background, bold=ink in (EVALUATION, GAP), reverse=ink == ROW
            )
        return self._styles[ink]

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scrolled(event, 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scrolled(event, -1)

    def _scrolled(self, event: events.MouseEvent, by: int) -> None:
        event.stop()
        self.post_message(self.Scrolled(self._column(event), by))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._held = event.x
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._held is not None and event.x != self._held:
            self.post_message(self.Dragged(event.x - self._held))
            self._held = event.x

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._held = None
        self.release_mouse()

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Picked(self._column(event)))

    def _column(self, event: events.MouseEvent) -> int:
        return min(2 * self.columns - 1, max(0, 2 * (event.x - LEFT_CELLS)))


def _labels(heat: Heat, lines: int, at: int | None) -> dict[int, tuple[str, int]]:
    """Returns the labels, each in the first line of its row, with the sign of one that stands out."""
    labels = dict.fromkeys(range(lines), (f"{'':{LABEL_CELLS}}│", NONE))
    for index, (line, row) in enumerate(zip(first_lines(heat, lines), heat.rows, strict=False)):
        sign = row.condition.symbol if row.condition else "│"
        ink = ROW if index == at else GAP if row.condition else EVALUATION if row.chosen else NONE
        labels[line] = f"{row.label:>{LABEL_CELLS}}{sign}", ink
    return labels
