"""The loss chart's geometry: which points to draw, between which limits, with which marks on the axes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor, isfinite, log10

from tuiapp.state.run_facts import RunFacts
from tuiapp.state.series import Point, smooth

MAX_LINES = 4
"""More ranks are drawn as their mean with the band from least to greatest."""

MAX_EVALUATIONS = 200

Polyline = list[tuple[float, float]]


@dataclass(slots=True)
class Curve:
    """One line of the chart, in pieces: it is broken where values are not finite."""

    label: str
    color: int
    """Its place in the palette; -1 for the band's edges."""
    pieces: list[Polyline] = field(default_factory=list)


@dataclass(slots=True)
class Chart:
    """All that is drawn. On a logarithmic axis every y is the value's decimal logarithm."""

    curves: list[Curve] = field(default_factory=list)
    evaluations: Polyline = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    """Steps at which a loss was not finite."""
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    x_ticks: list[tuple[float, str]] = field(default_factory=list)
    y_ticks: list[tuple[float, str]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.evaluations and not self.gaps and not any(curve.pieces for curve in self.curves)


def build_chart(
    state: RunFacts, *, columns: int, rows: int, smoothing: float = 0.0, log: bool = False, rank: int | None = None
) -> Chart:
    """Reduce a run's curves to what a chart of that size can show.

    Args:
        state: The run.
        columns: Points per curve, about: twice the cells, since a braille cell is two dots wide.
        rows: Height in cells.
        smoothing: Weight of the past, from 0 to below 1.
        log: Whether the loss axis is logarithmic; values of 0 and less are then left out.
        rank: Draw only that rank; None for all.
    """
    chart = Chart()
    shown = [r for r in sorted(state.ranks.values(), key=lambda r: r.rank) if len(r.losses)]
    if rank is not None:
        shown = [r for r in shown if r.rank == rank]
    if shown:
        start = min(r.losses.first_step for r in shown)
        stop = max(r.losses.last_step for r in shown)
        reduced = [r.losses.reduce(columns, start, stop) for r in shown]
        chart.gaps = sorted({p.step for points in reduced for p in points if p and p.gaps})
        if len(shown) <= MAX_LINES:
            chart.curves = [
                Curve(str(r.rank), r.rank, _pieces(points, smoothing, log, (stop - start + 1) / columns))
                for r, points in zip(shown, reduced, strict=True)
            ]
        else:
            chart.curves = _band(reduced, smoothing, log)
        chart.x_range = (start, max(stop, start + 1))
    stride = ceil(len(state.evaluations) / MAX_EVALUATIONS) or 1
    for evaluation in state.evaluations[::-1][::stride]:
        if (y := _scale(evaluation.loss, log)) is not None:
            chart.evaluations.append((evaluation.step, y))
    _set_axes(chart, columns, rows, log)
    return chart


def _scale(value: float | None, log: bool) -> float | None:
    if value is None or not isfinite(value) or abs(value) > 1e30:
        return None
    if not log:
        return value
    return log10(value) if value > 0 else None


def _pieces(points: list[Point | None], smoothing: float, log: bool, column_steps: float) -> list[Polyline]:
    means = smooth([p.mean if p and p.count else None for p in points], smoothing)
    pieces: list[Polyline] = [[]]
    for point, mean in zip(points, means, strict=True):
        if point is None:
            continue
        if point.count:
            if smoothing or point.count == 1:
                values = [(point.step, mean)]
            else:
                # Every extreme is drawn, in the order that the line most likely took.
                ends = (point.low, point.high) if point.first <= point.last else (point.high, point.low)
                values = [(point.step - column_steps / 4, ends[0]), (point.step + column_steps / 4, ends[1])]
            pieces[-1] += [(x, y) for x, value in values if (y := _scale(value, log)) is not None]
        if point.gaps and pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _band(reduced: list[list[Point | None]], smoothing: float, log: bool) -> list[Curve]:
    """Mean, least and greatest over the ranks, column by column."""
    steps: list[float] = []
    rows: list[tuple[float | None, float | None, float | None]] = []
    for column in zip(*reduced, strict=True):
        means = [point.mean for point in column if point and point.count]
        step = next((point.step for point in column if point), None)
        if step is not None:
            steps.append(step)
            rows.append((sum(means) / len(means), min(means), max(means)) if means else (None, None, None))
    curves = []
    for index, (label, color) in enumerate((("least", -1), ("greatest", -1), ("mean", 0))):
        values = smooth([row[(1, 2, 0)[index]] for row in rows], smoothing)
        pieces: list[Polyline] = [[]]
        for step, value in zip(steps, values, strict=True):
            if (y := _scale(value, log)) is not None:
                pieces[-1].append((step, y))
            elif pieces[-1]:
                pieces.append([])
        curves.append(Curve(label, color, [piece for piece in pieces if piece]))
    return curves


def _set_axes(chart: Chart, columns: int, rows: int, log: bool) -> None:
    points = [point for curve in chart.curves for piece in curve.pieces for point in piece] + chart.evaluations
    if points:
        low, high = min(y for _, y in points), max(y for _, y in points)
        pad = (high - low) * 0.04 or max(abs(high) * 0.1, 0.01)
        # Losses are above 0: unless the curve is far from it, the axis begins there.
        from_zero = not log and 0 <= low < high / 2
        chart.y_range = (0.0 if from_zero else low - pad, high + pad)
        if chart.evaluations:
            left, right = chart.x_range
            chart.x_range = (
                min(left, *(x for x, _ in chart.evaluations)) if chart.curves else chart.evaluations[-1][0] - 1,
                max(right, *(x for x, _ in chart.evaluations)),
            )
    chart.x_ticks = [(x, f"{x:,.0f}") for x in nice_ticks(*chart.x_range, max(2, columns // 24), least=1.0)]
    ticks = _log_ticks(*chart.y_range) if log else []
    if len(ticks) < 2:
        linear = nice_ticks(*chart.y_range, max(3, rows // 3))
        ticks = [(y, _label(10**y if log else y)) for y in linear]
    chart.y_ticks = ticks


def _label(value: float) -> str:
    return f"{value:.4g}".rjust(6)


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Decades, with 2 and 5 between them where there are few."""
    factors = (1,) if high - low > 3 else (1, 2, 5)
    ticks = []
    for decade in range(floor(low), ceil(high) + 1):
        for factor in factors:
            y = decade + log10(factor)
            if low <= y <= high:
                ticks.append((y, _label(factor * 10.0**decade)))
    return ticks[:: ceil(len(ticks) / 8) or 1]


def nice_ticks(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """At most about `count` round numbers from `low` to `high`.

    Args:
        low: Where the axis begins.
        high: Where it ends.
        count: How many there is room for.
        least: The smallest distance between two.
    """
    span = high - low
    if span <= 0 or not isfinite(span):
        return [low]
    raw = max(span / max(1, count), least)
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = ceil(low / step)
    return [number * step for number in range(first, floor(high / step + 1e-9) + 1)]
