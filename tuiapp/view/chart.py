"""A chart's geometry: which curves are drawn, their limits and ticks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, log10
from typing import Literal, TypeAlias

import numpy as np

from tuiapp.trainers.contract.events import Facts
from tuiapp.trainers.contract.metrics import EPOCH, LOSS, RATE, held_out_of
from tuiapp.trainers.state.condition import SLOW_SKEW
from tuiapp.trainers.state.curves import ALL, Axis, Curves
from tuiapp.trainers.state.known_metrics import PER_RANK, UTILIZATION, metric
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.series import Floats, Reduced, Series, not_finite, smooth
from tuiapp.view.axes import (
    LABEL_CELLS,
    Ticks,
    Window,
    in_sight,
    log_ticks,
    round_up,
    short_duration,
    step_ticks,
    time_ticks,
    value_range,
    value_ticks,
)
from tuiapp.view.devices.view import gpu_views
from tuiapp.view.heat import LEAST_MEMBERS, Heat, heat_of, in_cells
from tuiapp.view.marks import LETTERS
from tuiapp.view.rank_list import gpu_members, rank_members

Form: TypeAlias = Literal["lines", "band", "heat"]

MAX_LINES = LEAST_MEMBERS - 1  # more ranks are drawn as a heat map, or as their mean and a band from minimum to maximum
MOST_LINES = 16  # that are drawn of so many ranks if the user asks for it
MAX_EVALUATIONS = 400
LETTERS_EVERY = 80  # dot columns between two letters of the same curve

BAND = -1  # colour of curves that are not of one rank

START = 0.05  # share of a curve's first values that may leave a linear axis of values
LEAST_GAIN = 2.0  # how many times shorter the axis must be without them

FLAT = 0.05  # share of a linear axis in which most values are
LEAST_RATIO = 30.0  # of the greatest value to the least


STALL = 10.0  # how many times longer than usual nothing is reported before the curve of the speed is broken
STALL_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class ChartOptions:
    metric: str = LOSS
    axis: Axis = "step"
    smoothing: float = 0.0  # weight of the past, from 0 to below 1; for curves with a value at each step
    log: bool = False  # logarithmic axis of values; values ≤ 0 are left out
    window: Window | None = None  # visible part of the lower axis; None for all
    full_y_range: bool = False  # the axis of values covers the first ones, too
    form: Form | None = None  # of more than `MAX_LINES` ranks; None for what tells most of the metric
    among: tuple[int, int] | None = None  # the first and the last rank or device of a heat map; None for all

    @property
    def weight(self) -> float:
        """The smoothing of this metric's curves: values of evaluations are not smoothed."""
        return 0.0 if metric(self.metric).held_out else self.smoothing


@dataclass(slots=True)
class Curve:
    """A curve is one line, a value per column; NaN where there is none."""

    label: str
    color: int  # index in the palette, or `BAND`
    middle: Floats
    low: Floats
    high: Floats
    breaks: Floats  # above 0 where values were not finite: the line is broken there


@dataclass(slots=True)
class Chart:
    """A chart has all that is drawn. On a logarithmic axis every y is the value's decimal logarithm."""

    curves: list[Curve] = field(default_factory=list)
    raw: list[Curve] = field(default_factory=list)  # the curves before they were smoothed
    band: Curve | None = None
    bands: list[Curve] = field(default_factory=list)  # of the groups of a comparison, each in its mean's colour
    ranks: int = 0  # in the band; of a comparison the runs
    evaluations: list[tuple[float, float]] = field(default_factory=list)
    """(place, value) of evaluations on held-out data, the newest first."""
    evaluation_line: Curve | None = None  # through them, unless they are the metric itself
    held_out: str = ""  # name of the held-out data, such as "test"
    marks: list[tuple[int, float, str, int]] = field(default_factory=list)
    """(column, y, character, palette index) of the letters on the curves."""
    gaps: list[int] = field(default_factory=list)  # columns with a value that was not finite
    not_finite: str = ""  # how many are not
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    clipped: tuple[float | None, float | None] = (None, None)
    """The least and the greatest of the first values that are below and above `y_range`; None for none."""
    is_flat: bool = False  # on its linear axis most values are one line, and a logarithmic one would tell them apart
    x_ticks: Ticks = field(default_factory=list)
    y_ticks: Ticks = field(default_factory=list)
    extent: tuple[float, float] = (0.0, 1.0)  # from the first to the last value, visible or not
    log: bool = False
    axis: Axis = "step"
    forms: Sequence[Form] = ("lines",)  # to choose from
    form: Form = "lines"
    heat: Heat | None = None  # its colours are of the values of `y_range`

    @property
    def is_empty(self) -> bool:
        return not self.evaluations and not self.gaps and not self.curves

    @property
    def columns(self) -> int:
        return len(self.curves[0].middle) if self.curves else 0

    @property
    def share_in_sight(self) -> float:
        """Visible fraction of the whole range, from 0 to 1."""
        (left, right), (first, last) = self.x_range, self.extent
        return (min(right, last) - left) / (last - first)

    def x_at(self, column: int) -> float:
        left, right = self.x_range
        return left + (right - left) * column / max(1, self.columns - 1)

    def column_at(self, x: float) -> int:
        """The nearest column to a place."""
        left, right = self.x_range
        return min(self.columns - 1, max(0, round((x - left) / ((right - left) or 1) * max(1, self.columns - 1))))

    def place_words(self, x: float) -> str:
        """Formats a place on the lower axis."""
        if self.axis == "time":
            return short_duration(x)
        if self.axis == "epoch":
            return f"epoch {x:.2f}"
        return f"step {x:,.0f}" if self.axis == "step" else f"{metric(self.axis).label} {x:,.6g}"

    def read(self, column: int) -> list[tuple[str, int, float | None]]:
        """Returns label, colour and value of each curve at a column; between two values of a curve, the earlier one."""
        values = []
        for curve in [*self.curves, *([self.band] if self.band else [])]:
            value = _value_at(curve, column)
            values.append((curve.label, curve.color, 10**value if value is not None and self.log else value))
        return values


def _value_at(curve: Curve, column: int) -> float | None:
    """Returns a curve's value within half a cell of a column, or else the one before if the line continues there."""
    filled = np.flatnonzero(~np.isnan(curve.middle))
    # A cell is two columns wide.
    near = filled[np.abs(filled - column) <= 1]
    if len(near):
        return float(curve.middle[near[np.argmin(np.abs(near - column))]])
    after = int(np.searchsorted(filled, column))
    if not 0 < after < len(filled) or (curve.breaks[filled[after - 1] : filled[after] + 1] > 0).any():
        return None
    return float(curve.middle[filled[after - 1]])


class Line:
    """A line has values of a metric that are to be drawn, with their places on the lower axis."""

    def __init__(self, label: str, color: int, series: Series, curves: Curves, axis: Axis, name: str) -> None:
        """`curves` knows the time and the epoch of each step of the metric `name`."""
        self.label, self.color, self.series = label, color, series
        self.places = curves.places(series.middles(), axis, name)
        first, last = curves.places(np.array([series.first_step, series.last_step], float), axis, name).tolist()
        self.ends: tuple[float, float] = first, last

    @property
    def is_known(self) -> bool:
        """Whether there are values, and their places are known: not every run has epochs."""
        return len(self.places) > 0 and not np.isnan(self.places).any()


def build_chart(
    state: RunState,
    options: ChartOptions,
    *,
    columns: int,
    rows: int,
    rank: int | None = None,
) -> Chart:
    """Draws a curve per rank, or beyond `MAX_LINES` ranks a heat map, or their mean and a band; of a `rank` its curve.

    Curves are reduced to `columns` values, two per cell since a braille cell is two dots wide. `rows` is in cells.
    """
    options = replace(options, axis=axis_of([(state.facts, state.curves)], options))
    lines = _lines_of(state, options)
    chart, drawn = _reduced(lines, options, columns, live=state.is_live)
    chart.forms, chart.form = _forms(options, len(lines))
    chart.not_finite = not_finite([line.series for line in lines])
    if chart.form == "heat":
        # Not smoothed: a cell is the mean of its moment.
        chart.curves = [_curve(line, reduced, 0.0, options.log) for line, reduced in drawn]
        _set_axes(chart, options, columns, rows)
        _set_heat(chart, state, options, rows, rank)
        return chart
    if not_finite_at := [reduced.gaps for line, reduced in drawn if not line.series.is_finite]:
        chart.gaps = np.flatnonzero(sum(not_finite_at)).tolist()
    chosen = [(line, reduced) for line, reduced in drawn if line.label == str(rank)]
    if chart.form == "band":
        chart.ranks = len(lines)
        chart.band, mean = _band([reduced for _, reduced in drawn], options.weight, options.log)
        drawn, chart.curves = chosen, [] if chosen else [mean]
    drawn = chosen or drawn
    chart.curves += [_curve(line, reduced, options.weight, options.log, extremes=True) for line, reduced in drawn]
    chart.raw = [_curve(line, reduced, 0.0, options.log) for line, reduced in drawn if options.weight]
    _mark_evaluations(chart, state, options, columns)
    _set_axes(chart, options, columns, rows)
    return chart


def build_comparison(
    runs: Sequence[tuple[str, int, Curves]],
    options: ChartOptions,
    *,
    columns: int,
    rows: int,
    live: bool = False,
    unlike: Container[int] = (),
) -> Chart:
    """Draws the mean over the ranks of each run, which is given by its letter, palette index and curves.

    Runs of the same index are a group, drawn as their mean and a band in its colour, or as a line each if it is among
    `unlike`; more runs than there are letters are a band without a colour. `columns` and `rows` are as in
    `build_chart`. Runs without the metric are left out. `live`: some go on.
    """
    name, axis = options.metric, options.axis
    lines = [Line(letter, color, curves[ALL, name], curves, axis, name) for letter, color, curves in runs]
    groups = len({line.color for line in lines})
    if groups == 1 and len(lines) > len(LETTERS) and lines[0].color not in unlike:
        return _build_band(lines, options, columns=columns, rows=rows, live=live)
    if groups < len(lines):
        return _build_groups(lines, options, columns=columns, rows=rows, live=live, unlike=unlike)
    chart = build_lines(lines, options, columns=columns, rows=rows, live=live)
    chart.marks = _letters(chart.curves) if len(lines) > 1 else []
    return chart


def _build_band(lines: Sequence[Line], options: ChartOptions, *, columns: int, rows: int, live: bool) -> Chart:
    chart, drawn = _reduced([line for line in lines if line.is_known], options, columns, live=live)
    # Runs are not evaluated at the same steps: between two values of a run its line goes on.
    joined = [_joined(reduced) for _, reduced in drawn]
    if visible := [reduced for reduced in joined if not np.isnan(reduced.mean).all()]:
        chart.ranks = len(visible)
        chart.band, mean = _band(visible, options.weight, options.log)
        chart.curves = [mean]
    _set_axes(chart, options, columns, rows)
    return chart


def _build_groups(
    lines: Sequence[Line], options: ChartOptions, *, columns: int, rows: int, live: bool, unlike: Container[int]
) -> Chart:
    chart, drawn = _reduced([line for line in lines if line.is_known], options, columns, live=live)
    groups: dict[tuple[str, int, int], list[Reduced]] = {}
    for index, (line, reduced) in enumerate(drawn):
        if not np.isnan(reduced.mean).all():
            number = index if line.color in unlike else -1
            groups.setdefault((line.label, line.color, number), []).append(reduced)
    for (label, color, _), group in groups.items():
        # Alone, a run has its gaps.
        joined = list(map(_joined, group)) if len(group) > 1 else group
        band, mean = _band(joined, options.weight, options.log)
        chart.curves.append(replace(mean, label=label, color=color))
        if len(group) > 1:
            chart.bands.append(replace(band, label=label, color=color))
    # Of many lines in one colour one has the letter; none of those for which there are no letters.
    lettered = {curve.color: curve for curve in chart.curves if curve.color != BAND}
    chart.marks = _letters([*lettered.values()]) if len(lettered) > 1 else []
    chart.curves = [curve if curve is lettered.get(curve.color) else replace(curve, label="") for curve in chart.curves]
    _set_axes(chart, options, columns, rows)
    return chart


def build_lines(
    lines: Sequence[Line],
    options: ChartOptions,
    *,
    columns: int,
    rows: int,
    extremes: bool = False,
    live: bool = False,
) -> Chart:
    """Draws those lines of which something is visible; with `extremes` the least and greatest values of each, too."""
    chart, drawn = _reduced([line for line in lines if line.is_known], options, columns, live=live)
    for line, reduced in drawn:
        curve = _curve(line, reduced, options.weight, options.log, extremes=extremes)
        if not np.isnan(curve.middle).all():
            chart.curves.append(curve)
            if options.weight and len(drawn) <= MAX_LINES:
                chart.raw.append(_curve(line, reduced, 0.0, options.log))
    _set_axes(chart, options, columns, rows)
    return chart


def axis_of(runs: Iterable[tuple[Facts, Curves]], options: ChartOptions) -> Axis:
    """Returns the axis; in place of steps the metric that the scripts of all runs have named, once it is known."""
    axes = {_axis_of(facts, curves, options) for facts, curves in runs if options.metric in curves.names}
    return axes.pop() if len(axes) == 1 else options.axis


def _axis_of(facts: Facts, curves: Curves, options: ChartOptions) -> Axis:
    by = facts.step_metric_of(options.metric) if options.axis == "step" else ""
    if not by or not (by == EPOCH or curves.first(by).never_falls):
        return options.axis
    ends = curves.places(np.array([curves.first(options.metric).last_step], float), by, options.metric)
    return by if np.isfinite(ends).all() else options.axis


def _forms(options: ChartOptions, count: int) -> tuple[Sequence[Form], Form]:
    """Returns the forms that a chart of so many ranks may have, and the one that it has."""
    if count <= MAX_LINES:
        return ("lines",), "lines"
    forms: Sequence[Form] = ("band", "lines", "heat") if count <= MOST_LINES else ("band", "heat")
    if options.form is not None and options.form in forms:
        return forms, options.form
    return forms, "heat" if options.metric in PER_RANK else "band"


def _set_heat(chart: Chart, state: RunState, options: ChartOptions, rows: int, rank: int | None) -> None:
    """Makes the curves rows, and the axis of values a scale of colours."""
    shown, devices = metric(options.metric), options.metric == UTILIZATION
    indices = [curve.color for curve in chart.curves]
    if devices:
        views = [view for view in gpu_views(state) if view.gpu.sample.uuid in state.utilization]
        members = gpu_members(state, [views[index] for index in indices], rank)
    else:
        members = rank_members(state, indices, rank)
    values = in_cells(*(np.stack([getattr(curve, name) for curve in chart.curves]) for name in ("middle", "breaks")))
    chart.heat = heat_of(members, values, rows, options.among, "GPU" if devices else "rank", shown.format)
    low, high = chart.y_range
    if shown.unit == "%":
        low, high = 0.0, 100.0
    else:
        # What differs by less than makes a rank slow is of one colour, nearly.
        low = min(low, high + log10(1 - SLOW_SKEW) if chart.log else high - SLOW_SKEW * abs(high))
    chart.y_range, chart.y_ticks = (low, high), []


def _lines_of(state: RunState, options: ChartOptions) -> list[Line]:
    """Returns the ranks' values of a metric, or the GPUs'."""
    if options.metric == UTILIZATION:
        gpus = sorted(state.gpus.values(), key=lambda gpu: (gpu.sample.node, gpu.sample.index))
        samples = [gpu.sample for gpu in gpus if gpu.sample.uuid in state.utilization]
        named = [
            (
                f"{f'n{sample.node} ' if state.nodes else ''}GPU {sample.index}",
                index,
                state.utilization[sample.uuid].series,
            )
            for index, sample in enumerate(samples)
        ]
    else:
        ranks = state.curves.ranks(options.metric)
        named = [(str(rank), rank, state.curves[rank, options.metric]) for rank in ranks]
    return [
        Line(label, color, series, state.curves, options.axis, options.metric)
        for label, color, series in named
        if len(series)
    ]


def _reduced(
    lines: Sequence[Line], options: ChartOptions, columns: int, *, live: bool = False
) -> tuple[Chart, list[tuple[Line, Reduced]]]:
    """Returns a chart whose lower axis fits all lines, and each line with its values reduced to `columns`."""
    chart = Chart(log=options.log, axis=options.axis)
    if not lines:
        return chart, []
    first, last = min(line.ends[0] for line in lines), max(line.ends[1] for line in lines)
    chart.extent = first, max(last, first + (1e-3 if options.axis == "time" else 1))
    left, right = in_sight(options.window, chart.extent)
    if live and (options.window is None or options.window[1] is None):
        # The axis of a live run ends at a round number, so that it does not move with each step.
        span, right = right - left, round_up(right, right - left)
        left = left if options.window is None else right - span
    chart.x_range = (left, right)
    drawn = [(line, line.series.reduce(columns, left, right, line.places)) for line in lines]
    if options.metric == RATE and options.axis == "time":
        for line, reduced in drawn:
            _break_in_stalls(reduced, line.places, left, right)
    return chart, drawn


def _break_in_stalls(reduced: Reduced, places: Floats, left: float, right: float) -> None:
    """Empties the columns of each time in which a run did nothing for long.

    A report after it has several steps: those without a time of their own are spread over the stall.
    """
    width, waits = (right - left) / max(1, len(reduced.mean) - 1), np.diff(places)
    if not len(waits):
        return
    long = waits > max(STALL * float(np.median(waits)), STALL_COLUMNS * width)
    for start, stop in np.flatnonzero(np.diff(long, prepend=False, append=False)).reshape(-1, 2):
        first, last = np.rint((places[[start, stop]] - left) / width).astype(int)
        inside = slice(max(0, first + 1), max(0, last))
        for values in (reduced.mean, reduced.low, reduced.high):
            values[inside] = np.nan
        reduced.gaps[inside] = 1


def _curve(line: Line, reduced: Reduced, weight: float, log: bool, *, extremes: bool = False) -> Curve:
    low = high = middle = _scaled(smooth(reduced.mean, weight), log)
    # Without smoothing every extreme is drawn.
    if extremes and not weight:
        low, high = _scaled(reduced.low, log), _scaled(reduced.high, log)
    return Curve(line.label, line.color, middle, low, high, reduced.gaps)


def _band(reduced: list[Reduced], weight: float, log: bool) -> tuple[Curve, Curve]:
    means = np.stack([curve.mean for curve in reduced])
    some = ~np.isnan(means).all(axis=0)
    bounds = np.full((3, means.shape[1]), np.nan)
    if some.any():
        values = means[:, some]
        bounds[:, some] = np.nanmin(values, axis=0), np.nanmax(values, axis=0), np.nanmean(values, axis=0)
    low, high, mean = (_scaled(smooth(bound, weight), log) for bound in bounds)
    breaks = np.sum([curve.gaps for curve in reduced], axis=0)
    return Curve("band", BAND, mean, low, high, breaks), Curve("mean", 0, mean, mean, mean, breaks)


def _joined(reduced: Reduced) -> Reduced:
    """Returns a curve without empty columns between its first and its last value."""
    filled = np.flatnonzero(~np.isnan(reduced.mean))
    if not len(filled):
        return reduced
    mean, every = reduced.mean.copy(), np.arange(filled[0], filled[-1] + 1)
    mean[every] = np.interp(every, filled, reduced.mean[filled])
    return Reduced(mean, mean, mean, reduced.gaps)


def _scaled(values: Floats, log: bool) -> Floats:
    """Returns values as they are drawn: on a logarithmic axis their decimal logarithms, NaN where there is none."""
    if not log:
        return values
    powers = np.full(len(values), np.nan)
    np.log10(values, out=powers, where=values > 0)
    return powers


def _mark_evaluations(chart: Chart, state: RunState, options: ChartOptions, columns: int) -> None:
    """Adds evaluations, marks on a line: the held-out counterpart of the metric, or all values of a held-out metric."""
    shown = metric(options.metric)
    name = options.metric if shown.held_out else held_out_of(options.metric, state.curves.names)
    series = state.curves.first(name)
    if not len(series):
        return
    line = Line(metric(name).group, BAND, series, state.curves, options.axis, name)
    stride = ceil(len(series) / MAX_EVALUATIONS)
    places, values = line.places[::-1][::stride], _scaled(series.means()[::-1][::stride], options.log)
    if not chart.curves:
        left, right = float(places.min()), float(places.max())
        chart.x_range = chart.extent = (left, max(right, left + 1))
    left, right = chart.x_range
    inside = (places >= left) & (places <= right) & ~np.isnan(values)
    chart.held_out = line.label
    chart.evaluations = list(zip(places[inside].tolist(), values[inside].tolist(), strict=True))
    if not shown.held_out:
        reduced = series.reduce(columns, left, right, line.places)
        chart.evaluation_line = _curve(line, reduced, 0.0, options.log, extremes=True)


def _letters(curves: Sequence[Curve]) -> list[tuple[int, float, str, int]]:
    marks = []
    for index, curve in enumerate(curves):
        filled = np.flatnonzero(~np.isnan(curve.middle))
        shift = LETTERS_EVERY * (index + 1) // (len(curves) + 1)
        for column in [*np.arange(filled[0] + shift, filled[-1] - 6, LETTERS_EVERY), filled[-1]]:
            # For a curve with few values this interpolates between them.
            y = float(np.interp(column, filled, curve.middle[filled]))
            marks.append((int(column), y, curve.label, curve.color))
    return marks


def _set_axes(chart: Chart, options: ChartOptions, columns: int, rows: int) -> None:
    """Fits the axis of values to what is drawn, and gives both axes their ticks.

    While a whole run is shown on a linear axis, the first 5 % of each curve's values are left out if the axis is at
    most half as long without them: a loss that falls from 2.4 to 0.05 at once would hide that it rises to 0.26 later.
    All values after them are on the axis. Utilization, a share of a whole, has 0 to 100 %; an accuracy has the part
    where its values are, since what tells runs apart is mostly near 100 %.
    """
    drawn = [*chart.curves, *chart.raw, *chart.bands, *filter(None, (chart.band, chart.evaluation_line))]
    ends = [values[~np.isnan(values)] for curve in drawn for values in (curve.low, curve.high)]
    values = np.concatenate(ends or [np.empty(0)])
    if len(values):
        least, most = float(values.min()), float(values.max())
        chart.y_range = value_range(least, most, log=chart.log)
        if not (options.log or options.full_y_range or options.window):
            later = np.concatenate([values[int(START * len(values)) :] for values in ends])
            low, high = value_range(float(later.min()), float(later.max()))
            if chart.y_range[1] - chart.y_range[0] >= LEAST_GAIN * (high - low):
                chart.y_range = low, high
                chart.clipped = least if least < low else None, most if most > high else None
        if not options.log and least > 0 and most / least >= LEAST_RATIO:
            low, high = np.quantile(values, (0.1, 0.9))
            chart.is_flat = bool(high - low < FLAT * (chart.y_range[1] - chart.y_range[0]))
    unit = metric(options.metric).unit
    if unit == "%" and not chart.log:
        chart.y_range = 0.0, max(100.0, chart.y_range[1])
    if unit == "share" and not chart.log and values.size and values.min() >= 0 and values.max() <= 1:
        chart.y_range = max(0.0, chart.y_range[0]), min(1.0, chart.y_range[1])
    ticks = log_ticks if chart.log else value_ticks
    chart.y_ticks = ticks(*chart.y_range, max(2, rows // 3), unit)
    x_ticks = {"step": step_ticks, "time": time_ticks}.get(options.axis, value_ticks)
    chart.x_ticks = x_ticks(*chart.x_range, max(2, columns // 24))


LEFT_CELLS, BOTTOM_CELLS = LABEL_CELLS + 1, 2


def frame(chart: Chart, columns: int, rows: int) -> list[str]:
    """Returns `rows` lines with the axis of values, then the lower axis; `LEFT_CELLS` before `columns` free cells.

    A number of the lower axis that has no room beside those before it is left out, with its tick.
    """
    values = {cell_at(y, chart.y_range, rows): label[:LABEL_CELLS] for y, label in chart.y_ticks}
    lines = [
        f"{values.get(row, ''):>{LABEL_CELLS}}{'┤' if row in values else '│'}{' ' * columns}"
        for row in reversed(range(rows))
    ]
    width = LEFT_CELLS + columns
    line, numbers = ["─"] * width, [" "] * width
    for x, label in chart.x_ticks:
        tick, size = LEFT_CELLS + cell_at(x, chart.x_range, columns), len(label)
        near = [at for at in range(max(0, tick - size + 1), min(tick + size, width - 1)) if numbers[at] == " "]
        # Beneath its tick, or as near as the ends of the line and other numbers let it.
        start = (near[0] + near[-1] + 1 - size) // 2 if near else tick
        if 0 <= start <= width - size and set(numbers[max(0, start - 1) : start + size + 1]) == {" "}:
            numbers[start : start + size] = label
            line[min(tick, width - 1)] = "┬"
    return [*lines, f"{'':{LABEL_CELLS}}└{''.join(line[LEFT_CELLS:])}", "".join(numbers)]


def cell_at(value: float, limits: tuple[float, float], cells: int) -> int:
    """Returns the cell of a value on an axis whose limits are in the middle of the first and the last one."""
    low, high = limits
    # What is halfway must not depend on how floats are rounded.
    return floor(round((value - low) / (high - low) * (cells - 1) + 0.5, 8))
