"""The curves of several runs in one chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainers.state.curves import ALL, Axis, Curves
from trainers.state.known_metrics import metric
from trainers.state.series import smooth
from trainers.state.text import MISSING
from tuiapp.view.axes import in_sight, short_duration, step_ticks, time_ticks, value_ticks
from tuiapp.view.chart import MAX_LINES, Chart, Curve, Look, raw_line, scaled, set_y_axis

LETTERS_EVERY = 80  # dot columns between two letters of the same curve


def build_comparison(runs: Sequence[tuple[str, int, Curves]], look: Look, *, columns: int, rows: int) -> Chart:
    """Reduces curves to what a chart of that size can show; runs without the metric are left out.

    `runs` has letter, palette index and curves of each. Curves have `columns` values: twice the cells, since a braille
    cell is two dots wide. `rows` is in cells.
    """
    chart = Chart(log=look.log, by_time=look.axis == "time")
    sources = []
    for letter, color, curves in runs:
        series = curves[ALL, look.metric]
        places = curves.places(series.middles(), look.axis)
        if len(places) and not np.isnan(places).any():
            sources.append((letter, color, series, places))
    if not sources:
        return chart
    first = min(float(places[0]) for *_, places in sources)
    last = max(float(places[-1]) for *_, places in sources)
    chart.extent = (first, last if last > first else first + 1)
    chart.x_range = in_sight(look.window, chart.extent)
    weight = 0.0 if metric(look.metric).held_out else look.smoothing
    for letter, color, series, places in sources:
        reduced = series.reduce(columns, *chart.x_range, places)
        middle = scaled(smooth(reduced.mean, weight), look.log)
        if not np.isnan(middle).all():
            chart.curves.append(Curve(letter, color, middle, middle, middle, reduced.gaps))
            if weight and len(sources) <= MAX_LINES:
                chart.raw.append(raw_line(letter, color, reduced, look.log))
    set_y_axis(chart, look, rows)
    chart.x_ticks = _x_ticks(chart, look.axis, max(2, columns // 24))
    chart.marks = _letters(chart.curves)
    return chart


def read_out(chart: Chart, column: int, name: str) -> dict[int, str]:
    """Formats the values at a dot column, keyed by the curves' palette indices."""
    words = metric(name).format
    return {color: words(value) if value is not None else MISSING for _, color, value in chart.read(column)}


def place_words(place: float, axis: Axis) -> str:
    """Formats a place on the lower axis."""
    if axis == "time":
        return short_duration(place)
    return f"step {place:,.0f}" if axis == "step" else f"epoch {place:.2f}"


def _x_ticks(chart: Chart, axis: Axis, count: int) -> list[tuple[float, str]]:
    if axis == "time":
        return time_ticks(*chart.x_range, count)
    if axis == "step":
        return step_ticks(*chart.x_range, count)
    return value_ticks(*chart.x_range, count)


def _letters(curves: Sequence[Curve]) -> list[tuple[int, float, str, int]]:
    marks = []
    for place, curve in enumerate(curves):
        known = np.flatnonzero(~np.isnan(curve.middle))
        shift = LETTERS_EVERY * (place + 1) // (len(curves) + 1)
        wanted = [*np.arange(known[0] + shift, known[-1] - 6, LETTERS_EVERY), known[-1]]
        for column in wanted:
            # For a curve with few values this interpolates between them.
            y = float(np.interp(column, known, curve.middle[known]))
            marks.append((int(column), y, curve.label, curve.color))
    return marks
