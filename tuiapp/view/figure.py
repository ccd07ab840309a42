"""A chart as SVG: one metric of one or several runs, for pages that are read without tuiapp."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from tuiapp.trainers.contract.metrics import held_out_of
from tuiapp.trainers.state.curves import ALL, Curves
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.series import Floats
from tuiapp.trainers.state.text import sanitize
from tuiapp.view.axes import Ticks, step_ticks
from tuiapp.view.chart import Chart, ChartOptions, Curve, Line, build_lines
from tuiapp.view.marks import series_color

WIDTH, HEIGHT = 640, 270
LEFT, RIGHT, TOP, BOTTOM = 64, 628, 40, 232  # of the axes
COLUMNS = 283  # points of a curve at most: one for two units
ROWS = 15  # as a chart in cells: it decides how many numbers are beside the axis of values
X_TICKS = 6
MARKED = 60  # curves of no more points have each of them marked

DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "9 3 2 3 2 3", "1 5")
"""Beside its colour each curve has its own pattern."""


def draw_figure(runs: Sequence[tuple[str, int, Curves]], name: str, *, standalone: bool = False) -> str:
    """Returns the SVG of a metric over the steps; "" if no run has a value of it.

    `runs` has the letter, the place in the list of runs, and the curves of each. A curve is the mean over the ranks; of
    a single run the band shows the least and the greatest value. `standalone` adds the colours, which a page otherwise
    has once for all figures (see `style`).
    """
    alone, shown = len(runs) == 1, metric(name)
    # Without a counterpart in evaluations it is drawn alone.
    names = dict.fromkeys((name, held_out_of(name, [key for *_, curves in runs for key in curves.names]) or name))
    lines = [Line(key, index, curves[ALL, key], curves, "step", key) for _, index, curves in runs for key in names]
    chart = build_lines(lines, ChartOptions(name), columns=COLUMNS, rows=ROWS, extremes=alone)
    if not chart.curves:
        return ""
    parts = [
        f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{_text(shown.label)}</title>",
        f"<style>{style()}</style>" if standalone else "",
        f'<text class="name" x="{LEFT}" y="20">{_text(shown.label)}</text>',
        _axes(chart, step_ticks(*chart.x_range, X_TICKS), "step"),
    ]
    drawn = [_band(curve, chart) for curve in chart.curves if alone and curve.label == name]
    drawn += [_path(curve, chart, thin=curve.label != name) for curve in chart.curves]
    parts += [*_within_axes(drawn, chart), _clipped(chart, name), _legend(chart, name, runs), "</svg>"]
    return "\n".join(part for part in parts if part)


def draw_scaling(chart: Chart, unit: str) -> str:
    """Returns the SVG of a scaling study's chart, `COLUMNS` wide: points with their spread, and the ideal line."""
    measured, linear = chart.curves[0], chart.raw[0]
    columns = np.flatnonzero(~np.isnan(measured.middle))
    curves = (_points(columns, values, chart) for values in (measured.middle, measured.low, measured.high))
    marks = []
    for point, low, high in zip(*curves, strict=True):
        x, y = point.split()
        marks += [f'<circle class="f0" cx="{x}" cy="{y}" r="3"/>', f'<path class="curve c0" d="M{low}L{high}"/>']
    ends = "L".join(_points(np.flatnonzero(~np.isnan(linear.middle)), linear.middle, chart))
    parts = [
        f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>speed-up</title>",
        f'<text class="name" x="{LEFT}" y="20">speed-up ({_text(unit)}) over devices</text>',
        _axes(chart, chart.x_ticks, "devices"),
        f'<path class="curve thin c1" stroke-dasharray="{DASHES[1]}" d="M{ends}"/>',
        _path(measured, chart, thin=False),
        *marks,
        f'<text x="{RIGHT}" y="20" text-anchor="end">dashed: linear; bars: least and most</text>',
        "</svg>",
    ]
    return "\n".join(parts)


def style() -> str:
    """Returns the CSS of figures, for light and dark pages."""
    return (
        ".figure{font:12px system-ui,sans-serif}.figure text{fill:#555}.figure .name{font-weight:600;font-size:14px;"
        "fill:#222}.figure .grid{stroke:#8883;stroke-width:1}.figure .curve{fill:none;stroke-width:1.8;"
        "stroke-linejoin:round;stroke-linecap:round}.figure .thin{stroke-width:1}.figure .band{stroke:none;opacity:.18}"
        + _colors(dark=False)
        + "@media(prefers-color-scheme:dark){.figure text{fill:#aaa}.figure .name{fill:#eee}"
        + _colors(dark=True)
        + "}"
    )


def swatch(index: int) -> str:
    """Returns a short piece of the curve of the run with that index, for a legend."""
    return (
        '<svg class="figure" xmlns="http://www.w3.org/2000/svg" width="36" height="10" aria-hidden="true">'
        f'<path class="curve c{index}"{_dash(index)} d="M1 5H35"/></svg>'
    )


def _colors(*, dark: bool) -> str:
    colors = [series_color(index, dark=dark) for index in range(len(DASHES))]
    rules = (
        f".figure .c{index}{{stroke:{color}}}.figure .f{index}{{fill:{color}}}" for index, color in enumerate(colors)
    )
    return "".join(rules)


def _heights(values: Floats, chart: Chart) -> Floats:
    bottom, top = chart.y_range
    return BOTTOM - (values - bottom) / (top - bottom) * (BOTTOM - TOP)


def _axes(chart: Chart, x_ticks: Ticks, name: str) -> str:
    parts = []
    for value, label in chart.y_ticks:
        y = _heights(np.array(value), chart)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_text(label)}</text>')
    left, right = chart.x_range
    for value, label in x_ticks:
        x = LEFT + (value - left) / (right - left) * (RIGHT - LEFT)
        # A label at the edge must not be cut off.
        anchor = "middle" if x + 4 * len(label) < WIDTH else "end"
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="{anchor}">{_text(label)}</text>')
    parts.append(f'<text x="{RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{name}</text>')
    return "\n".join(parts)


def _pieces(curve: Curve) -> list[NDArray[np.int64]]:
    """Returns the columns with a value, in pieces between values that were not finite."""
    columns = np.flatnonzero(~np.isnan(curve.middle))
    # A break belongs to the next point that there is.
    broken = np.diff(np.cumsum(curve.breaks)[columns]) > 0
    return np.split(columns, np.flatnonzero(broken) + 1)


def _points(columns: NDArray[np.int64], values: Floats, chart: Chart) -> list[str]:
    x, y = LEFT + columns / (COLUMNS - 1) * (RIGHT - LEFT), _heights(values[columns], chart)
    return [f"{across:.1f} {down:.1f}" for across, down in zip(x.tolist(), y.tolist(), strict=True)]


def _path(curve: Curve, chart: Chart, *, thin: bool) -> str:
    pieces = [_points(piece, curve.middle, chart) for piece in _pieces(curve)]
    points, index = [point.split() for piece in pieces for point in piece], curve.color
    path = "".join("M" + "L".join(piece) for piece in pieces)
    parts = [f'<path class="curve c{index}{" thin" * thin}"{_dash(index)} d="{path}"/>']
    if len(points) == 1 or (metric(curve.label).held_out and len(points) <= MARKED):
        parts += [f'<circle class="f{index}" cx="{x}" cy="{y}" r="2.6"/>' for x, y in points]
    return "\n".join(parts)


def _band(curve: Curve, chart: Chart) -> str:
    areas = (
        "L".join([*_points(piece, curve.high, chart), *reversed(_points(piece, curve.low, chart))])
        for piece in _pieces(curve)
    )
    return f'<path class="band f{curve.color}" d="{"".join(f"M{area}Z" for area in areas)}"/>'


def _within_axes(drawn: Sequence[str], chart: Chart) -> list[str]:
    """Cuts off what is beyond the axis of values, as the program's charts do."""
    if chart.clipped == (None, None):
        return list(drawn)
    box = f"{LEFT} {TOP - 2} {RIGHT - LEFT} {BOTTOM - TOP + 4}"
    x, y, width, height = box.split()
    # An inner SVG has no overflow.
    return [f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{box}">', *drawn, "</svg>"]


def _clipped(chart: Chart, name: str) -> str:
    """Returns what the first values reach that are not on the axis."""
    ends = zip("↓↑", chart.clipped, strict=True)
    texts = [f"{arrow} {metric(name).format(end)} at first" for arrow, end in ends if end is not None]
    return f'<text x="{LEFT}" y="34">{_text(", ".join(texts))}</text>' if texts else ""


def _legend(chart: Chart, name: str, runs: Sequence[tuple[str, int, Curves]]) -> str:
    """Returns the runs' labels, and which curve is the evaluation's, from right to left above the axes."""
    parts, x = [], float(RIGHT)
    if beside := next((curve.label for curve in chart.curves if curve.label != name), ""):
        text = f"● {metric(beside).label}"
        parts.append(f'<text x="{x:.0f}" y="20" text-anchor="end">{_text(text)}</text>')
        x -= 6.5 * len(text) + 16
    drawn = {curve.color for curve in chart.curves} if len(runs) > 1 else ()
    for label, index, _ in (run for run in reversed(runs) if run[1] in drawn):
        parts.append(f'<text x="{x:.0f}" y="20" text-anchor="end">{_text(label)}</text>')
        x -= 8 * len(label) + 4
        parts.append(f'<path class="curve c{index}"{_dash(index)} d="M{x - 24:.0f} 16H{x:.0f}"/>')
        x -= 38
    return "\n".join(parts)


def _dash(index: int) -> str:
    return f' stroke-dasharray="{DASHES[index]}"' if DASHES[index] else ""


def _text(text: str) -> str:
    return escape(sanitize(text, 60))
