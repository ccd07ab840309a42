"""A chart's geometry: which curves to draw, their limits and ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np

from trainers.contract.metrics import LOSS, held_out_of
from trainers.state.curves import Axis
from trainers.state.known_metrics import UTILIZATION, metric
from trainers.state.run_state import RunState
from trainers.state.series import Floats, Reduced, Series, smooth
from tuiapp.view.axes import (
    Ticks,
    Window,
    in_sight,
    log_ticks,
    round_up,
    step_ticks,
    time_ticks,
    value_range,
    value_ticks,
)

MAX_LINES = 4  # more ranks are drawn as their mean and a band from minimum to maximum
MAX_EVALUATIONS = 400

BAND = -1  # colour of curves that are not of one rank

START = 0.05  # share of a curve's first values that may leave a linear axis of values
LEAST_GAIN = 2.0  # how many times shorter the axis must be without them


@dataclass(frozen=True, slots=True)
class Look:
    metric: str = LOSS
    axis: Axis = "step"
    smoothing: float = 0.0  # weight of the past, from 0 to below 1; for curves with a value at each step
    log: bool = False  # logarithmic axis of values; values ≤ 0 are left out
    window: Window | None = None  # visible part of the lower axis; None for all
    every: bool = False  # the axis of values covers the first ones, too
    rank: int | None = None  # of a run's chart; None for all; beyond `MAX_LINES` ranks it is drawn over their band


@dataclass(slots=True)
class Curve:
    """One line, a value per column; NaN where there is none."""

    label: str
    color: int  # index in the palette, or `BAND`
    middle: Floats
    low: Floats
    high: Floats
    breaks: Floats  # above 0 where values were not finite: the line is broken there


@dataclass(slots=True)
class Chart:
    """All that is drawn. On a logarithmic axis every y is the value's decimal logarithm."""

    curves: list[Curve] = field(default_factory=list)
    raw: list[Curve] = field(default_factory=list)  # the curves before they were smoothed
    band: Curve | None = None
    ranks: int = 0  # in the band
    evaluations: list[tuple[float, float]] = field(default_factory=list)
    """(place, value) of evaluations on held-out data, the newest first."""
    evaluation_line: Curve | None = None  # through them, unless they are the metric itself
    held_out: str = ""  # name of the held-out data, such as "test"
    marks: list[tuple[int, float, str, int]] = field(default_factory=list)
    """(column, y, character, palette index) of the letters on the curves."""
    gaps: list[int] = field(default_factory=list)  # columns with a value that was not finite
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    beyond: tuple[float | None, float | None] = (None, None)
    """The least and the greatest of the first values that are below and above `y_range`; None for none."""
    x_ticks: Ticks = field(default_factory=list)
    y_ticks: Ticks = field(default_factory=list)
    extent: tuple[float, float] = (0.0, 1.0)  # from the first to the last value, visible or not
    log: bool = False
    by_time: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.evaluations and not self.gaps and not self.curves

    @property
    def columns(self) -> int:
        return len(self.curves[0].middle) if self.curves else 0

    def x_at(self, column: int) -> float:
        left, right = self.x_range
        return left + (right - left) * column / max(1, self.columns - 1)

    def read(self, column: int) -> list[tuple[str, int, float | None]]:
        """Returns label, colour and value of each curve at a column; between two values of a curve, the earlier one."""
        values = []
        for curve in [*self.curves, *([self.band] if self.band else [])]:
            found = _value_at(curve, column)
            values.append((curve.label, curve.color, 10**found if found is not None and self.log else found))
        return values


def _value_at(curve: Curve, column: int) -> float | None:
    """Returns a curve's value within half a cell of a column, or else the one before if the line continues there."""
    known = np.flatnonzero(~np.isnan(curve.middle))
    # A cell is two columns wide.
    near = known[np.abs(known - column) <= 1]
    if len(near):
        return float(curve.middle[near[np.argmin(np.abs(near - column))]])
    after = int(np.searchsorted(known, column))
    if not 0 < after < len(known) or (curve.breaks[known[after - 1] : known[after] + 1] > 0).any():
        return None
    return float(curve.middle[known[after - 1]])


@dataclass(slots=True)
class _Source:
    label: str
    color: int
    series: Series


def build_chart(state: RunState, look: Look, *, columns: int, rows: int) -> Chart:
    """Reduces curves to `columns` values, two per cell since a braille cell is two dots wide, and `rows` cells."""
    chart = Chart(log=look.log, by_time=look.axis == "time")
    sources = [source for source in _sources(state, look) if len(source.series)]
    _set_x_range(chart, sources, state, look)
    reduced = [_reduce(source.series, chart, state, look.axis, columns) for source in sources]
    weight = 0.0 if metric(look.metric).held_out else look.smoothing
    if len(sources) > MAX_LINES:
        chart.ranks = len(sources)
        chosen = next((n for n, source in enumerate(sources) if source.label == str(look.rank)), None)
        chart.band, mean = _band(reduced, weight, look.log)
        lines = [] if chosen is None else [(sources[chosen], reduced[chosen])]
        chart.curves = [] if lines else [mean]
    else:
        lines = list(zip(sources, reduced, strict=True))
        lines = [line for line in lines if line[0].label == str(look.rank)] or lines
    chart.curves += [_line(source, each, weight, look.log) for source, each in lines]
    chart.raw = [raw_line(source.label, source.color, each, look.log) for source, each in lines if weight]
    if reduced:
        chart.gaps = np.flatnonzero(sum(each.gaps for each in reduced)).tolist()
    _mark_evaluations(chart, state, look, columns)
    set_y_axis(chart, look, rows)
    ticks = time_ticks if chart.by_time else step_ticks
    chart.x_ticks = ticks(*chart.x_range, max(2, columns // 24))
    return chart


def _sources(state: RunState, look: Look) -> list[_Source]:
    if look.metric == UTILIZATION:
        gpus = sorted(state.gpus.values(), key=lambda gpu: (gpu.sample.node, gpu.sample.index))
        known = [gpu.sample for gpu in gpus if gpu.sample.uuid in state.utilization]
        names = [f"n{one.node} GPU {one.index}" if state.nodes else f"GPU {one.index}" for one in known]
        return [
            _Source(name, place, state.utilization[one.uuid].series)
            for place, (name, one) in enumerate(zip(names, known, strict=True))
        ]
    return [_Source(str(rank), rank, state.curves[rank, look.metric]) for rank in state.curves.ranks(look.metric)]


def _set_x_range(chart: Chart, sources: list[_Source], state: RunState, look: Look) -> None:
    if not sources:
        return
    ends = np.array([min(s.series.first_step for s in sources), max(s.series.last_step for s in sources)], float)
    first, last = (float(x) for x in state.curves.places(ends, look.axis))
    chart.extent = first, max(last, first + (1e-3 if chart.by_time else 1))
    first, last = chart.extent
    if look.window is None:
        # The axis of a live run ends at a round number, so that it does not move with each step.
        chart.x_range = (first, round_up(last, last - first) if state.is_live else last)
        return
    left, right = in_sight(look.window, chart.extent)
    if look.window[1] is None and state.is_live:
        span, right = right - left, round_up(right, right - left)
        left = right - span
    chart.x_range = (left, right)


def _reduce(series: Series, chart: Chart, state: RunState, axis: Axis, columns: int) -> Reduced:
    return series.reduce(columns, *chart.x_range, state.curves.places(series.middles(), axis))


def _line(source: _Source, reduced: Reduced, weight: float, log: bool) -> Curve:
    middle = scaled(smooth(reduced.mean, weight), log)
    # Without smoothing every extreme is drawn.
    low, high = (middle, middle) if weight else (scaled(reduced.low, log), scaled(reduced.high, log))
    return Curve(source.label, source.color, middle, low, high, reduced.gaps)


def raw_line(label: str, color: int, reduced: Reduced, log: bool) -> Curve:
    """Returns what smoothing begins with: the mean of each column, without its extremes."""
    middle = scaled(reduced.mean, log)
    return Curve(label, color, middle, middle, middle, reduced.gaps)


def _band(reduced: list[Reduced], weight: float, log: bool) -> tuple[Curve, Curve]:
    means = np.stack([each.mean for each in reduced])
    some = ~np.isnan(means).all(axis=0)
    bounds = np.full((3, means.shape[1]), np.nan)
    if some.any():
        known = means[:, some]
        bounds[:, some] = np.nanmin(known, axis=0), np.nanmax(known, axis=0), np.nanmean(known, axis=0)
    low, high, mean = (scaled(smooth(each, weight), log) for each in bounds)
    breaks = np.sum([each.gaps for each in reduced], axis=0)
    return Curve("band", BAND, mean, low, high, breaks), Curve("mean", 0, mean, mean, mean, breaks)


def scaled(values: Floats, log: bool) -> Floats:
    """Returns values as they are drawn: on a logarithmic axis their decimal logarithms, NaN where there is none."""
    if not log:
        return values
    powers = np.full(len(values), np.nan)
    np.log10(values, out=powers, where=values > 0)
    return powers


def _mark_evaluations(chart: Chart, state: RunState, look: Look, columns: int) -> None:
    """Adds evaluations, marks on a line: the held-out counterpart of the metric, or all values of a held-out metric."""
    shown = metric(look.metric)
    name = look.metric if shown.held_out else held_out_of(look.metric, state.curves.names)
    series = state.curves.first(name)
    if not len(series):
        return
    stride = ceil(len(series) / MAX_EVALUATIONS)
    steps, values = (each[::-1][::stride] for each in (series.middles(), series.means()))
    places = state.curves.places(steps, look.axis)
    left, right = chart.x_range if chart.curves else (float(places.min()), float(places.max()))
    if not chart.curves:
        chart.x_range = chart.extent = (left, max(right, left + 1))
    values = scaled(values, look.log)
    inside = (places >= left) & (places <= right) & ~np.isnan(values)
    chart.held_out = metric(name).group
    chart.evaluations = list(zip(places[inside].tolist(), values[inside].tolist(), strict=True))
    if not shown.held_out:
        reduced = _reduce(series, chart, state, look.axis, columns)
        chart.evaluation_line = _line(_Source(chart.held_out, BAND, series), reduced, 0.0, look.log)


def set_y_axis(chart: Chart, look: Look, rows: int) -> None:
    """Fits the value axis to what is drawn, in `rows` cells.

    While a whole run is shown on a linear axis, the first 5 % of each curve's values are left out if the axis is at
    most half as long without them: a loss that falls from 2.4 to 0.05 at once would hide that it rises to 0.26 later.
    All values after them are on the axis.
    """
    drawn = [curve for curve in (*chart.curves, *chart.raw, chart.band, chart.evaluation_line) if curve is not None]
    ends = [values[~np.isnan(values)] for curve in drawn for values in (curve.low, curve.high)]
    values = np.concatenate(ends or [np.empty(0)])
    if len(values):
        least, most = float(values.min()), float(values.max())
        chart.y_range = value_range(least, most, log=chart.log)
        if not (look.log or look.every or look.window):
            later = np.concatenate([values[int(START * len(values)) :] for values in ends])
            low, high = value_range(float(later.min()), float(later.max()))
            if chart.y_range[1] - chart.y_range[0] >= LEAST_GAIN * (high - low):
                chart.y_range = low, high
                chart.beyond = least if least < low else None, most if most > high else None
    unit = metric(look.metric).unit
    if unit == "share" and not chart.log and values.size and values.max() <= 1:
        chart.y_range = (chart.y_range[0], min(1.0, chart.y_range[1]))
    ticks = log_ticks if chart.log else value_ticks
    chart.y_ticks = ticks(*chart.y_range, max(2, rows // 3), unit)
