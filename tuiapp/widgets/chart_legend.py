"""The line above a chart: the legend or, with a cursor, the values at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from trainers.contract.metrics import LOSS, TEST_ACCURACY
from tuiapp.state.axes import short_duration
from tuiapp.state.chart import BAND, Chart
from tuiapp.state.metrics import UTILIZATION, metric
from tuiapp.state.palette import series_color
from tuiapp.state.text import join_words
from tuiapp.widgets.colors import BAND_COLOR, MUTED


@dataclass(frozen=True, slots=True)
class Look:
    dark: bool
    metric: str

    def color(self, index: int) -> str:
        return BAND_COLOR if index == BAND else series_color(index, dark=self.dark)


def names(chart: Chart, look: Look) -> Content:
    """Returns the metric, the lines with their ranks, and what the marks mean."""
    parts = [Content.styled(metric(look.metric).label, "bold")]
    if chart.gaps:
        parts.append(Content.styled("not finite ✕", "bold $text-warning"))
    if chart.band is not None:
        curve = chart.curves[0]
        name = f"mean of {chart.ranks} ranks " if curve.label == "mean" else f"rank {curve.label} "
        parts.append(Content.assemble(name, ("━", look.color(curve.color))))
        parts.append(Content.assemble("min–max ", ("▒", look.color(BAND))))
    elif not metric(look.metric).held_out and chart.curves:
        if look.metric != UTILIZATION:
            parts.append(Content("rank"))
        parts += [Content.assemble(f"{c.label} ", ("━", look.color(c.color))) for c in chart.curves]
    if chart.evaluations:
        parts.append(Content(f"{chart.held_out} ◆"))
    return Content("  ").join(parts)


def reading(chart: Chart, column: int, look: Look) -> Content:
    """Returns the values at a column of dots."""
    words, place = metric(look.metric).format, chart.x_at(column)

    def figure(y: float) -> str:
        return words(None if y != y else 10**y if chart.log else y)

    at = short_duration(place) if chart.by_time else f"step {place:,.0f}"
    parts = [Content.styled(at, "bold")]
    for label, color, value in chart.read(column):
        if color == BAND and chart.band is not None:
            low, high = figure(float(chart.band.low[column])), figure(float(chart.band.high[column]))
            parts.append(Content.assemble(("▒ ", look.color(color)), f"{low} to {high}"))
        else:
            alone = metric(look.metric).held_out and len(chart.curves) == 1
            name = chart.held_out if alone else f"rank {label}" if label.isdecimal() else label
            parts.append(Content.assemble(("━ ", look.color(color)), f"{name} {words(value)}"))
    width = (chart.x_range[1] - chart.x_range[0]) / max(1, chart.columns - 1)
    near = [y for x, y in chart.evaluations if abs(x - place) <= 2 * width]
    if near:
        parts.append(Content(f"◆ {chart.held_out} {figure(near[0])}"))
    return Content("  ").join(parts)


def line_of(left: Content, settings: Sequence[str], width: int) -> Content:
    """Returns the legend with as many settings at its right end as fit, the first ones first."""
    room = width - left.cell_length - 2
    kept = next((count for count in range(len(settings), 0, -1) if len(join_words(settings[:count])) <= room), 0)
    if not kept:
        return left
    words = join_words(settings[:kept])
    return Content.assemble(left, " " * (room + 2 - len(words)), (words, MUTED))


def why_empty(name: str, *, live: bool) -> str:
    """Returns the text shown in place of an empty chart."""
    if not live:
        return "no step was taken" if name == LOSS else "no data for this metric"
    awaited = {LOSS: "the first step", TEST_ACCURACY: "the first evaluation", UTILIZATION: "the first sample of a GPU"}
    return f"waiting for {awaited[name]}…" if name in awaited else "no data for this metric yet"
