"""A chart with its legend: one metric of whatever its source has, which keys and mouse zoom, pan and read out.

It stands alone, or as one of several on a page, under a line with its metric and latest value.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any, ClassVar, Protocol

import numpy as np
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.reactive import var
from textual.widgets import Static

from tuiapp.trainers.contract.metrics import LOSS, TEST
from tuiapp.trainers.state.curves import Axis
from tuiapp.trainers.state.known_metrics import UTILIZATION, metric
from tuiapp.trainers.state.text import join_words, plural
from tuiapp.trainers.tasks.catalog import TASKS
from tuiapp.view.axes import panned, zoomed
from tuiapp.view.chart import BAND, BOTTOM_CELLS, LEFT_CELLS, Chart, ChartOptions
from tuiapp.view.chart_words import PAUSED, setting_words
from tuiapp.view.devices.drawing import join_fitting
from tuiapp.view.heat import Heat, scale
from tuiapp.view.marks import series_color
from tuiapp.widgets.colors import BAND_COLOR, MUTED, SEVERITY_STYLES, styled
from tuiapp.widgets.plot import Plot


def legend(chart: Chart, name: str, cursor: int | None, *, dark: bool, width: int = 0) -> Content:
    """Returns what the curves of a metric are or, with a cursor, their values at that column of dots.

    What does not fit a `width` above 0 is abbreviated.
    """
    if chart.heat is not None and cursor is not None:
        return _heat_reading(chart, chart.heat, cursor)
    if chart.heat is not None:
        make = partial(_heat, chart, chart.heat, dark=dark)
    elif cursor is None:
        make = partial(_names, chart, name, dark=dark)
    else:
        make = partial(_reading, chart, cursor, name, dark=dark)
    full = make()
    return make(brief=True) if 0 < width < full.cell_length else full


def _heat(chart: Chart, heat: Heat, *, dark: bool, brief: bool = False) -> Content:
    """Returns what the rows are, the scale of colours, and which rows stand out."""
    parts = [Content(plural(len(heat.members), heat.called)), scale_of(chart, heat, dark=dark)]
    if chart.not_finite:
        parts.insert(0, Content.styled(f"{'not finite' if brief else chart.not_finite} ✕", "bold $text-warning"))
    for row in sorted(heat.rows, key=lambda row: row.condition is not None and row.condition.severity != "error"):
        if row.culprit and (condition := row.culprit.condition):
            text = f"{condition.symbol} {row.culprit.label.strip()}{'' if brief else f' {condition.text}'}"
            parts.append(Content.styled(text, SEVERITY_STYLES[condition.severity]))
    return Content("  ").join(parts)


def _heat_reading(chart: Chart, heat: Heat, column: int) -> Content:
    """Returns the rows with the least and the greatest value at a column of dots."""
    place, cell = Content.styled(chart.place_words(chart.x_at(column)), "bold"), column // 2
    values = [(float(row.values[cell]), row.label.strip()) for row in heat.rows if isfinite(row.values[cell])]
    if not values:
        return place
    low, high = (f"{heat.words(value, log=chart.log)} ({label})" for value, label in (min(values), max(values)))
    return Content.assemble(place, f"  {low} to {high}")


def scale_of(chart: Chart, heat: Heat, *, dark: bool) -> Content:
    """Returns the colours of a heat map between the least and the greatest value."""
    return styled(scale(heat, *chart.y_range, log=chart.log), dark=dark)


def _color(index: int, dark: bool) -> str:
    return BAND_COLOR if index == BAND else series_color(index, dark=dark)


def _names(chart: Chart, name: str, *, dark: bool, brief: bool = False) -> Content:
    """Returns the lines with their ranks, and what the marks mean."""
    parts = []
    if chart.gaps:
        parts.append(Content.styled(f"{'not finite' if brief else chart.not_finite} ✕", "bold $text-warning"))
    if chart.band is not None:
        curve = chart.curves[0]
        lines = "" if brief else " GPUs" if name == UTILIZATION else " ranks"
        whose = f"mean of {chart.ranks}{lines} " if curve.label == "mean" else f"rank {curve.label} "
        parts.append(Content.assemble(whose, ("━", _color(curve.color, dark))))
        parts.append(Content.assemble("min–max ", ("▒", BAND_COLOR)))
    elif not metric(name).held_out and chart.curves:
        if name != UTILIZATION:
            parts.append(Content("rank"))
        parts += [Content.assemble(f"{c.label} ", ("━", _color(c.color, dark))) for c in chart.curves]
    if chart.evaluations:
        parts.append(Content(f"{chart.held_out} ◆"))
    return Content("  ").join(parts)


def _reading(chart: Chart, column: int, name: str, *, dark: bool, brief: bool = False) -> Content:
    words, place = metric(name).format, chart.x_at(column)

    def figure(y: float) -> str:
        return words(None if y != y else 10**y if chart.log else y)

    parts = [Content.styled(chart.place_words(place), "bold")]
    for label, color, value in chart.read(column):
        if color == BAND and chart.band is not None:
            low, high = figure(float(chart.band.low[column])), figure(float(chart.band.high[column]))
            parts.append(Content.assemble(("▒ ", BAND_COLOR), f"{low} to {high}"))
        else:
            alone = metric(name).held_out and len(chart.curves) == 1
            whose = chart.held_out if alone else f"rank {label}" if label.isdecimal() and not brief else label
            parts.append(Content.assemble(("━ ", _color(color, dark)), f"{whose} {words(value)}"))
    width = (chart.x_range[1] - chart.x_range[0]) / max(1, chart.columns - 1)
    near = [y for x, y in chart.evaluations if abs(x - place) <= 2 * width]
    if near:
        parts.append(Content(f"◆ {figure(near[0])}" if brief else f"◆ {chart.held_out} {figure(near[0])}"))
    return Content(" " if brief else "  ").join(parts)


def line_of(left: Content, settings: Sequence[str], width: int) -> Content:
    """Returns the legend with as many settings at its right end as fit, the first ones first."""
    room = width - left.cell_length - 2
    kept = next((count for count in range(len(settings), 0, -1) if len(join_words(settings[:count])) <= room), 0)
    if not kept:
        return left
    text = join_words(settings[:kept])
    return Content.assemble(left, " " * (room + 2 - len(text)), (text, MUTED))


def why_empty(name: str, *, live: bool, script: bool = False) -> str:
    """Returns the text shown in place of an empty chart; `script`: nothing was reported by a script of the user's."""
    if script:
        state = "waiting for the first metric…" if live else "no metric was reported:"
        return f"{state} F1 says how a script reports"
    if not live:
        return "no step was taken" if name == LOSS else "no data for this metric"
    awaited = {LOSS: "the first step", UTILIZATION: "the first sample of a GPU"}
    awaited |= {f"{TEST}/{task.figure}": "the first evaluation" for task in TASKS.values()}
    return f"waiting for {awaited[name]}…" if name in awaited else "no data for this metric yet"


REDRAW_S = 3.0
"""Between two drawings while the curves grow by less than a point."""

GROWN_S = 0.9
"""Between two drawings of those that have grown by a point."""

MOST_SHARE = 0.03
"""Share of a core for drawing all charts of a screen: with hundreds of ranks they are drawn less often."""

MOST_PER_S = 2.0
"""Drawings of all charts of a screen."""

UNUSUAL = ("rows", "row keys", "sight", "log", "other axis", "clipped", "flat")
USUAL = ("smoothing", "linear", "usual axis")
"""Settings that a frame's note has, where there is one, and those that are always beside the legend."""

PAN = 0.2
"""Fraction of the visible range that a key pans by."""

LEAST_SPAN: dict[Axis, float] = {"step": 4.0, "time": 0.5, "epoch": 0.05}
"""Smallest visible range, in steps, seconds or epochs; by another axis `LEAST_PART` of the whole."""
LEAST_PART = 1e-3


class ChartSource(Protocol):
    """Where the curves of charts come from."""

    def axes(self) -> Sequence[Axis]:
        """Returns the lower axes to choose from."""
        ...

    @property
    def names_curves(self) -> bool:
        """Whether the legends of all charts are the same: the curves' names."""
        ...

    @property
    def step(self) -> int:
        """The last step; 0 if the curves have none in common: then they are drawn whenever they change."""
        ...

    @property
    def version(self) -> object:
        """A value that differs after a change that is shown at once, however little the curves have grown."""
        ...

    def title(self) -> Content:
        """Returns whose curves these are."""
        ...

    def names(self) -> Sequence[str]:
        """Returns all metrics that were reported, in that order."""
        ...

    def build(self, options: ChartOptions, *, columns: int, rows: int) -> Chart:
        """Draws curves of `columns` values, two per cell, for an axis of values that is `rows` cells high."""
        ...

    def constant(self, name: str) -> float | None:
        """Returns the value that a metric had whenever it was reported, more than once; None if it varies."""
        ...

    def latest(self, name: str) -> str:
        """Returns a metric's last value; "" if there is none in common."""
        ...

    def legend(self, chart: Chart, options: ChartOptions, cursor: int | None, *, dark: bool, width: int) -> Content:
        """Names the curves or, with a cursor, their values at that column of dots."""
        ...

    def why_empty(self, options: ChartOptions) -> str:
        """Returns the text shown in place of an empty chart; "" for none."""
        ...


class ChartPanel(Vertical, can_focus=True):
    """Shows one chart. A `ChartGrid` around it decides when it is drawn: `draw` does it at once."""

    DEFAULT_CSS = """
    ChartPanel {
        background: $background;

        #legend { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        #instead { height: 1fr; display: none; content-align: center middle; color: $text-muted; }
        &.-empty Plot { display: none; }
        &.-empty #instead { display: block; }
    }
    """

    BINDING_GROUP_TITLE = "Rows"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "row(-1)", "Row above", show=False, id="rows.up"),
        Binding("down", "row(1)", "Row below", show=False, id="rows.down"),
        Binding("enter", "open_row", "A row's ranks, or all", show=False, id="rows.open"),
    ]

    SAYS_SETTINGS: ClassVar[bool] = True
    """Says above the curves, or in its frame, how they are drawn."""

    options: var[ChartOptions] = var(ChartOptions(), init=False)
    cursor: var[int | None] = var(None, init=False)
    """The column of dots whose values are shown, which freezes the curves; None for no cursor."""

    note: var[str] = var("", init=False)
    """What its frame says while there is nothing to say of its axes."""

    drawn: var[Chart] = var(Chart, init=False, always_update=True)

    def __init__(
        self,
        source: ChartSource,
        options: ChartOptions | None = None,
        *,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """With the class `-empty` the source's text is shown until there is something to draw."""
        super().__init__(id=id, classes=classes)
        if options:
            self.set_reactive(ChartPanel.options, options)
        self.source = source
        self.row = 0
        """The row of a heat map that Enter opens."""
        self.is_fixed = False
        """The mouse neither zooms nor pans nor reads values."""
        self.has_news = False
        """The source has something new: it is drawn soon."""
        self.is_stale = True
        """The drawing is not what was asked for: it is replaced at once."""
        self.beside = 0
        """Charts on the screen, with which it takes turns."""
        self.drawings = 0
        self._legend = Content()
        self._width = 0
        self._fitted: Size | None = None
        """The room for which it was drawn."""
        self._drawn_at, self._drawn_step, self._took_s = 0.0, 0, 0.0
        """When it was last drawn, the last step in it, and the processor time that it took."""
        self._drawn_version: object = None

    def compose(self) -> ComposeResult:
        yield Static(id="legend", markup=False)
        yield Static(self.source.why_empty(self.options), id="instead", markup=False)
        yield Plot()

    @property
    def plot(self) -> Plot:
        return self.query_one(Plot)

    def change(self, **options: Any) -> None:
        """Changes some of the options."""
        self.options = replace(self.options, **options)

    def watch_options(self, old: ChartOptions, new: ChartOptions) -> None:
        self.is_stale = True
        if (old.metric, old.axis) != (new.metric, new.axis):
            self.cursor = None

    def watch_cursor(self, cursor: int | None) -> None:
        if cursor is None:
            # The curves catch up.
            self.is_stale = True
        elif not self.drawn.is_empty:
            self._paint()
            self._show_legend()

    def on_resize(self, event: Resize) -> None:
        if event.size.width != self._width:
            self._width, self.cursor = event.size.width, None
        self.post_message(Plot.Resized())

    @property
    def is_due(self) -> bool:
        """Whether it is to be drawn now: asked for, or visibly longer, or with news for some seconds."""
        if not (self.is_mounted and self.display and self.region.area):
            return False
        if self.is_stale or self._room != self._fitted:
            return True
        since = time.monotonic() - self._drawn_at
        if not self.has_news or self.cursor is not None or since < self.beside * self._took_s / MOST_SHARE:
            return False
        step = self.source.step
        grown = (step - self._drawn_step) * 2 * self.plot.columns >= step
        wait = max(GROWN_S, self.beside / MOST_PER_S) if grown else REDRAW_S
        return since >= wait or self.source.version != self._drawn_version

    @property
    def _room(self) -> Size:
        """The plot's size, or that of the text in its place."""
        return self.size if self.has_class("-empty") else self.plot.size

    def draw(self) -> None:
        """Draws it now."""
        plot, source = self.plot, self.source
        self.is_stale = self.has_news = False
        self._drawn_at, self._drawn_step, self._drawn_version = time.monotonic(), source.step, source.version
        # A hidden plot has no size: it gets the panel's, less the legend and the axes.
        columns = plot.columns if plot.display else max(2, self.content_size.width - LEFT_CELLS)
        rows = plot.rows if plot.display else max(2, self.content_size.height - 1 - BOTTOM_CELLS)
        began = time.thread_time()
        chart = source.build(self.options, columns=2 * columns, rows=rows)
        self._took_s = time.thread_time() - began
        if chart.is_empty:
            self._explain(source.why_empty(self.options))
        elif plot.display:
            self._paint(chart)
            self.drawings += 1
        else:
            self._explain("")
            # The plot is drawn when it has been laid out.
            self.is_stale = True
        self._fitted = self._room
        self.drawn = chart
        self._show_legend()

    def _paint(self, chart: Chart | None = None) -> None:
        chart = chart or self.drawn
        opens = chart.heat is not None and not chart.heat.is_whole
        self.plot.show(chart, self.cursor, self.row if opens and self.has_focus else None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves the keys of rows to others where there are none to choose."""
        opens = self.drawn.heat is not None and not self.drawn.heat.is_whole
        return opens if action in ("row", "open_row") else True

    def on_focus(self) -> None:
        self._paint()

    def on_blur(self) -> None:
        self._paint()

    def action_row(self, by: int) -> None:
        assert self.drawn.heat is not None
        self.row = min(len(self.drawn.heat.rows) - 1, max(0, self.row + by))
        self._paint()

    def action_open_row(self) -> None:
        """Shows the ranks of a row alone or, if it is one rank's, all."""
        assert self.drawn.heat is not None
        rows = self.drawn.heat.rows
        places = rows[min(self.row, len(rows) - 1)].places
        self.row = 0
        self.change(among=(places[0], places[-1]) if len(places) > 1 else None)

    def _explain(self, why: str) -> None:
        """Shows a text in place of the curves, or with "" the curves."""
        self.set_class(bool(why), "-empty")
        if why:
            self.query_one("#instead", Static).update(why)

    def _show_legend(self) -> None:
        line = self.query_one("#legend", Static)
        if not line.display:
            return
        width, dark = self.content_size.width, self.app.current_theme.dark
        left = self.source.legend(self.drawn, self.options, self.cursor, dark=dark, width=width)
        settings = self._settings() if self.SAYS_SETTINGS else []
        if self.SAYS_SETTINGS and not self._is_framed and self.cursor is None:
            left = Content.assemble((metric(self.options.metric).label, "bold"), "  ", left)
        self._show_note()
        shown = line_of(left, settings, width)
        if not shown.is_same(self._legend):
            self._legend = shown
            line.update(shown, layout=False)

    @property
    def _is_framed(self) -> bool:
        """Whether a frame has its title and a note."""
        return bool(self.styles.border_top[0])

    def _show_note(self) -> None:
        """Says in the frame that the curves stand still, unusual settings, and what is hidden."""
        unusual = setting_words(self.drawn, self._drawn_options, *UNUSUAL)
        notes = PAUSED if self.cursor is not None else unusual
        text = join_fitting(notes, self.content_size.width - 2) if notes else self.note
        if self.SAYS_SETTINGS and text != str(self.border_subtitle or ""):
            self.border_subtitle = Content(text)

    def watch_note(self) -> None:
        self._show_note()

    @property
    def _drawn_options(self) -> ChartOptions:
        """The options with the axis that was drawn: in place of steps it may be a metric."""
        return replace(self.options, axis=self.drawn.axis)

    def _settings(self) -> list[str]:
        if self.cursor is not None:
            return [] if self._is_framed else PAUSED
        names = USUAL if self._is_framed else (*UNUSUAL, *USUAL)
        return setting_words(self.drawn, self._drawn_options, *names)

    def _up_to_date(self) -> Chart:
        """Returns the chart that the options ask for: its axis may have changed while it waits for its turn."""
        if self.is_stale:
            self.draw()
        return self.drawn

    def zoom(self, by: int, column: int | None = None) -> None:
        """Zooms in (1) or out (-1) around a column of dots, by default the cursor's, or the newest."""
        column, chart = self.cursor if column is None else column, self._up_to_date()
        window = zoomed(
            self.options.window,
            by,
            x_range=chart.x_range,
            extent=chart.extent,
            place=None if column is None else chart.x_at(column),
            least=LEAST_SPAN.get(self.options.axis, LEAST_PART * (chart.extent[1] - chart.extent[0])),
        )
        self.change(window=window)

    def pan(self, by: float) -> None:
        """Pans by a fraction of the visible range; below 0 for earlier."""
        self.change(window=panned(self.options.window, by, self._up_to_date().extent))

    def show_whole(self) -> None:
        """Shows the whole run, or if it is shown all values, or again not the first ones."""
        options = self.options
        self.change(window=None, full_y_range=options.full_y_range ^ (options.window is None))

    def toggle_cursor(self) -> None:
        """Shows the cursor at the newest point of any curve, or removes it."""
        if self.cursor is not None:
            self.cursor = None
        elif self.drawn.curves:
            columns = [np.flatnonzero(~np.isnan(curve.middle)) for curve in self.drawn.curves]
            self.cursor = max((int(drawn[-1]) for drawn in columns if len(drawn)), default=self.drawn.columns - 1)

    def next_form(self) -> None:
        """Draws ranks in the next way: a band, lines, a heat map."""
        chart = self._up_to_date()
        self.change(form=chart.forms[(chart.forms.index(chart.form) + 1) % len(chart.forms)])

    def move(self, by: int) -> None:
        """Moves the cursor by cells, or pans without one; below 0 to the left."""
        if self.cursor is None:
            self.pan(PAN if by > 0 else -PAN)
        else:
            self.cursor = min(self.drawn.columns - 1, max(0, self.cursor + 2 * by))

    @on(Plot.Picked)
    def _pick(self, event: Plot.Picked) -> None:
        event.stop()
        if not self.is_fixed:
            same = self.cursor is not None and self.cursor // 2 == event.column // 2
            self.cursor = None if same else event.column

    @on(Plot.Scrolled)
    def _scroll(self, event: Plot.Scrolled) -> None:
        event.stop()
        if not self.is_fixed:
            self.zoom(event.by, event.column)

    @on(Plot.Dragged)
    def _drag(self, event: Plot.Dragged) -> None:
        event.stop()
        if not self.is_fixed:
            self.pan(-event.cells / self.plot.columns)


class GridChart(ChartPanel, inherit_bindings=False):
    """A chart that can be selected; large, it has a legend, and the mouse zooms it and reads values."""

    DEFAULT_CSS = """
    GridChart {
        #title { height: 1; padding: 0 1 0 0; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
        #legend { display: none; padding: 0 1; }
        Plot { padding: 0; background: $background; }
        &.-large #legend { display: block; }
        &.-selected #title, &:focus #title { background: $primary 40%; text-style: bold; }
    }
    """

    SAYS_SETTINGS: ClassVar[bool] = False

    large: var[bool] = var(False, init=False, toggle_class="-large")
    selected: var[bool] = var(False, init=False, toggle_class="-selected")
    pinned: var[bool] = var(False, init=False)

    @dataclass
    class Selected(Message):
        """The user clicked it."""

        chart: GridChart
        twice: bool

    def __init__(self, source: ChartSource, options: ChartOptions | None = None) -> None:
        super().__init__(source, options)
        self._title = Content()

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield from super().compose()

    def _show_title(self) -> None:
        name = self.options.metric
        latest = Content(self.source.latest(name))
        if self.drawn.heat is not None:
            latest = Content("  ").join(
                [scale_of(self.drawn, self.drawn.heat, dark=self.app.current_theme.dark), latest]
            )
        room = max(1, self.size.width - 3 - latest.cell_length)
        label = f"{metric(name).label}{' · pinned' if self.pinned else ''}"
        title = Content(f"{'▸' if self.selected else ' '} {label}").truncate(room, ellipsis=True, pad=True)
        title = Content.assemble(title, " ", latest)
        if self.is_mounted and not title.is_same(self._title):
            self._title = title
            self.query_one("#title", Static).update(title, layout=False)

    watch_drawn = watch_selected = watch_pinned = _show_title

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Selected(self, event.chain > 1))
