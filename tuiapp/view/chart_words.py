"""What is said of how charts are drawn, and the keys that change it: the same on every screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tuiapp.trainers.state.known_metrics import metric
from tuiapp.view.chart import Chart, ChartOptions

PAUSED = ["paused", "v: resume"]
"""What is said while values are read."""


def setting_words(chart: Chart, options: ChartOptions, *names: str) -> list[str]:
    """Returns the words of these settings, in their order.

    "axis" and "scale" are said of every chart, "sight", "other axis" and "log" if they are unusual, "clipped" and
    "flat" with the key that shows more.
    """
    scale, by = "logarithmic" if options.log else "linear", f"by {options.axis}"
    texts = {
        "sight": [f"showing {100 * chart.share_in_sight:.3g} %"] if options.window else [],
        "axis": [by],
        "rows": _row_words(chart),
        "row keys": ["↑ ↓ enter"] if chart.heat and not chart.heat.is_whole else [],
        "usual axis": [by] if options.axis == "step" else [],
        "other axis": [by] if options.axis != "step" else [],
        "scale": [scale],
        "linear": [] if options.log else [scale],
        "log": [scale] if options.log else [],
        "smoothing": [f"smoothing {options.smoothing:g}" if options.smoothing and not chart.heat else "not smoothed"],
        "clipped": _clipped_words(chart, options),
        "flat": ["y: logarithmic shows more"] if chart.is_flat else [],
    }
    return [text for name in names for text in texts[name]]


def _row_words(chart: Chart) -> list[str]:
    """Returns what a row of a heat map is, and which ranks have one, unless each has."""
    heat = chart.heat
    if heat is None or heat.is_whole:
        return []
    first, last = heat.rows[0].places[0], heat.rows[-1].places[-1]
    ends = f"{heat.called}s {heat.members[first].number}–{heat.members[last].number} of {len(heat.members)}"
    most = max(len(row.places) for row in heat.rows)
    joined = [f"{most} {heat.called}s a row: mean or culprit"] if most > 1 else []
    return [*joined, *([ends] if last - first + 1 < len(heat.members) else [])]


def _clipped_words(chart: Chart, options: ChartOptions) -> list[str]:
    """Returns what the first values that are not on the axis reach, or that all are on it, with the key."""
    if options.full_y_range:
        return ["all values · 0 leaves out the first"]
    ends = [
        f"starts at {metric(options.metric).format(end)}, {where} the chart"
        for where, end in zip(("below", "above"), chart.clipped, strict=True)
        if end is not None
    ]
    return [*ends, "0 shows all"] if ends else []


class Key(NamedTuple):
    key: str
    id: str
    words: str
    tooltip: str = ""
    display: str | None = None
    action: str = ""


KEYS: Mapping[str, Key] = {
    "metric": Key("m", "metric", "Metric", "Choose the metric"),
    "grid": Key("G", "grid", "Grid", "All metrics in a grid", action="grid"),
    "several": Key("M", "several-charts", "One chart or several"),
    "log": Key("y", "log", "Log y"),
    "axis": Key("t", "axis", "Axis", "By time or step"),
    "rougher": Key("left_square_bracket", "rougher", "Less smooth", display="["),
    "smoother": Key("right_square_bracket", "smoother", "Smoother", display="]"),
    # Of its letter, in capitals as G and M, which change what charts there are; h holds a run in the list.
    "form": Key("H", "form", "Heat map, band, lines"),
    "cursor": Key("v", "read-values", "Values", "Read values"),
    "in": Key("plus,equals_sign", "zoom-in", "Zoom", "Zoom in", "+"),
    "out": Key("minus", "zoom-out", "Zoom out", display="-"),
    "whole": Key("0", "whole-run", "Whole run, all values"),
    "left": Key("left", "earlier", "Earlier"),
    "right": Key("right", "later", "Later"),
    "far_left": Key("shift+left", "much-earlier", "Much earlier"),
    "far_right": Key("shift+right", "much-later", "Much later"),
}
"""By what `ChartGrid.do` does at them, or with an action of their own."""
