"""The line above a chart: the legend or, with a cursor, the values at it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from textual.content import Content

from tuiapp.trainers.contract.metrics import LOSS, TEST
from tuiapp.trainers.state.known_metrics import UTILIZATION, metric
from tuiapp.trainers.state.text import join_words, plural
from tuiapp.trainers.tasks.catalog import TASKS
from tuiapp.view.chart import BAND, Chart
from tuiapp.view.heat import Heat, scale
from tuiapp.view.palette import series_color
from tuiapp.widgets.colors import BAND_COLOR, MUTED, SEVERITY_STYLES, styled


def legend(chart: Chart, name: str, cursor: int | None, *, dark: bool, width: int = 0) -> Content:
    """Returns what the curves of a metric are or, with a cursor, their values at that column of dots.

    What does not fit a `width` above 0 is abbreviated.
    """
    if chart.heat is not None:
        if cursor is not None:
            return _heat_reading(chart, chart.heat, cursor)
        whole = _heat(chart, chart.heat, dark=dark)
        return whole if not 0 < width < whole.cell_length else _heat(chart, chart.heat, dark=dark, brief=True)
    if cursor is None:
        named = _names(chart, name, dark=dark)
        return named if not 0 < width < named.cell_length else _names(chart, name, dark=dark, brief=True)
    read = _reading(chart, cursor, name, dark=dark)
    return read if not 0 < width < read.cell_length else _reading(chart, cursor, name, dark=dark, brief=True)


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
    known = [(float(row.values[cell]), row.label.strip()) for row in heat.rows if isfinite(row.values[cell])]
    if not known:
        return place
    low, high = (f"{heat.words(value, log=chart.log)} ({label})" for value, label in (min(known), max(known)))
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
    words = join_words(settings[:kept])
    return Content.assemble(left, " " * (room + 2 - len(words)), (words, MUTED))


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
