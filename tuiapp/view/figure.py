"""A chart as SVG: one metric of one or several runs, for pages that are read without tuiapp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from trainers.contract.metrics import held_out_of
from trainers.state.curves import ALL, Curves
from trainers.state.known_metrics import metric
from trainers.state.series import Floats
from trainers.state.text import sanitize
from tuiapp.view.axes import Ticks, step_ticks, value_range, value_ticks
from tuiapp.view.palette import series_color

WIDTH, HEIGHT = 640, 270
LEFT, RIGHT, TOP, BOTTOM = 64, 628, 40, 232  # of the axes
COLUMNS = 282  # points of a curve at most: one for two units
MARKED = 60  # curves of no more points have each of them marked

DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "9 3 2 3 2 3", "1 5")
"""Beside its colour each curve has its own pattern."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A run in a figure, by its place in the list of runs."""

    place: int
    label: str
    curves: Curves


@dataclass(slots=True)
class _Line:
    run: Drawn
    name: str  # the metric's
    beside: bool  # it is an evaluation's, drawn beside that of the steps
    x: Floats
    y: Floats
    low: Floats
    high: Floats
    breaks: Floats  # above 0 where a value was not finite


def draw_figure(runs: Sequence[Drawn], name: str, *, standalone: bool = False) -> str:
    """Returns the SVG of a metric over the steps; "" if no run has a value of it.

    A curve is the mean over the ranks; of a single run the band shows the least and the greatest value. `standalone`
    adds the colours, which a page otherwise has once for all figures (see `style`).
    """
    lines = [line for run in runs for line in _lines(run, name, runs)]
    if not lines:
        return ""
    alone = len(runs) == 1
    shown = metric(name)
    left, right = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
    right = max(right, left + 1)
    ends = [np.concatenate([line.y, line.low, line.high] if alone else [line.y]) for line in lines]
    bottom, top = value_range(*_bounds(np.concatenate(ends)))
    if shown.unit == "share" and max(np.nanmax(values) for values in ends) <= 1:
        top = min(1.0, top)
    place = _Scale(left, right, bottom, top)
    parts = [
        f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{_text(shown.label)}</title>",
        f"<style>{style()}</style>" if standalone else "",
        f'<text class="name" x="{LEFT}" y="20">{_text(shown.label)}</text>',
        _axes(place, step_ticks(left, right, 6), value_ticks(bottom, top, 5, shown.unit)),
    ]
    if alone:
        parts += [_band(line, place) for line in lines if not line.beside]
    parts += [_curve(line, place) for line in lines]
    parts += [_legend(lines, alone), "</svg>"]
    return "\n".join(part for part in parts if part)


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


def swatch(place: int) -> str:
    """Returns a short piece of a run's curve, for a legend."""
    return (
        '<svg class="figure" xmlns="http://www.w3.org/2000/svg" width="36" height="10" aria-hidden="true">'
        f'<path class="curve c{place}"{_dash(place)} d="M1 5H35"/></svg>'
    )


def _colors(*, dark: bool) -> str:
    each = ((place, series_color(place, dark=dark)) for place in range(len(DASHES)))
    return "".join(f".figure .c{place}{{stroke:{color}}}.figure .f{place}{{fill:{color}}}" for place, color in each)


@dataclass(frozen=True, slots=True)
class _Scale:
    left: float
    right: float
    bottom: float
    top: float

    def x(self, values: Floats) -> Floats:
        return LEFT + (values - self.left) / (self.right - self.left) * (RIGHT - LEFT)

    def y(self, values: Floats) -> Floats:
        return BOTTOM - (values - self.bottom) / (self.top - self.bottom) * (BOTTOM - TOP)


def _lines(run: Drawn, name: str, runs: Sequence[Drawn]) -> list[_Line]:
    names = [one for each in runs for one in each.curves.names]
    found = []
    for each in (name, held_out_of(name, names)):
        series = run.curves[ALL, each]
        if not len(series):
            continue
        steps = series.middles()
        reduced = series.reduce(COLUMNS, float(steps[0]), float(max(steps[-1], steps[0] + 1)))
        x = np.linspace(steps[0], max(steps[-1], steps[0] + 1), len(reduced.mean))
        known = ~np.isnan(reduced.mean)
        if known.any():
            # A break belongs to the next point that there is.
            behind = np.concatenate([[0.0], np.cumsum(reduced.gaps)])[1:][known]
            breaks = np.diff(behind, prepend=0.0)
            each_known = (x[known], reduced.mean[known], reduced.low[known], reduced.high[known], breaks)
            found.append(_Line(run, each, each != name, *each_known))
    return found


def _bounds(values: Floats) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _axes(place: _Scale, x_ticks: Ticks, y_ticks: Ticks) -> str:
    parts = []
    for value, label in y_ticks:
        y = place.y(np.array([value]))[0]
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_text(label)}</text>')
    for value, label in x_ticks:
        x = place.x(np.array([value]))[0]
        # A label at the edge must not be cut off.
        anchor = "middle" if x + 4 * len(label) < WIDTH else "end"
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="{anchor}">{_text(label)}</text>')
    parts.append(f'<text x="{RIGHT}" y="{HEIGHT - 4}" text-anchor="end">step</text>')
    return "\n".join(parts)


def _points(x: Floats, y: Floats) -> list[str]:
    return [f"{one:.1f} {other:.1f}" for one, other in zip(x.tolist(), y.tolist(), strict=True)]


def _curve(line: _Line, place: _Scale) -> str:
    points = _points(place.x(line.x), place.y(line.y))
    path = "".join(
        ("M" if first or broken > 0 else "L") + point
        for point, broken, first in zip(points, line.breaks, [True] + [False] * len(points), strict=False)
    )
    index = line.run.place
    thin = " thin" if line.beside else ""
    parts = [f'<path class="curve c{index}{thin}"{_dash(index)} d="{path}"/>']
    if len(points) == 1 or (metric(line.name).held_out and len(points) <= MARKED):
        dots = (point.split() for point in points)
        parts += [f'<circle class="f{index}" cx="{x}" cy="{y}" r="2.6"/>' for x, y in dots]
    return "\n".join(parts)


def _band(line: _Line, place: _Scale) -> str:
    x = place.x(line.x)
    upper, lower = _points(x, place.y(line.high)), _points(x, place.y(line.low))
    ends = [0, *(np.flatnonzero(line.breaks[1:] > 0) + 1).tolist(), len(x)]
    areas = ("L".join([*upper[start:end], *reversed(lower[start:end])]) for start, end in pairwise(ends))
    return f'<path class="band f{line.run.place}" d="{"".join(f"M{area}Z" for area in areas)}"/>'


def _legend(lines: Sequence[_Line], alone: bool) -> str:
    """The runs' labels, and which curve is the evaluation's, from right to left above the axes."""
    parts, x = [], float(RIGHT)
    if beside := next((line.name for line in lines if line.beside), ""):
        text = f"● {metric(beside).label}"
        parts.append(f'<text x="{x:.0f}" y="20" text-anchor="end">{_text(text)}</text>')
        x -= 6.5 * len(text) + 16
    for index, label in [] if alone else reversed({line.run.place: line.run.label for line in lines}.items()):
        parts.append(f'<text x="{x:.0f}" y="20" text-anchor="end">{_text(label)}</text>')
        x -= 8 * len(label) + 4
        parts.append(f'<path class="curve c{index}"{_dash(index)} d="M{x - 24:.0f} 16H{x:.0f}"/>')
        x -= 38
    return "\n".join(parts)


def _dash(place: int) -> str:
    return f' stroke-dasharray="{DASHES[place]}"' if DASHES[place] else ""


def _text(text: str) -> str:
    return escape(sanitize(text, 60))
