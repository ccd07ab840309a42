"""Limits and ticks of a chart's axes."""

from __future__ import annotations

from math import ceil, floor, isfinite, log10

from tuiapp.state.axis_labels import Unit, axis_labels, log_labels

Ticks = list[tuple[float, str]]

PARTS = 8
"""Number of steps that the span of an axis with a rounded end is divided into: at most one of them is empty."""


def round_up(value: float, span: float) -> float:
    """Returns the next round number from `value` on, so that the axis does not move while a curve grows."""
    step = round_step(span / PARTS)
    return ceil(value / step - 1e-9) * step


def round_step(raw: float) -> float:
    """Returns the smallest of 1, 2, 5 times a power of ten that is at least `raw`."""
    if raw <= 0 or not isfinite(raw):
        return 1.0
    power = 10.0 ** floor(log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


def value_range(low: float, high: float, *, from_zero: bool) -> tuple[float, float]:
    """Returns round limits around values; `from_zero` starts at 0 unless the values are far from it."""
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
        pad = abs(high) * 0.1 or 0.01
        return low - pad, high + pad
    step = round_step((high - low) / 20)
    bottom, top = floor(low / step) * step, ceil(high / step) * step
    return (0.0 if from_zero and 0 <= low < high / 2 else bottom), top


def step_ticks(low: float, high: float, count: int) -> Ticks:
    """Returns integer ticks for an axis of steps."""
    return [(x, f"{x:,.0f}") for x in nice_ticks(low, high, count, least=1.0)]


def time_ticks(low: float, high: float, count: int) -> Ticks:
    """Returns round durations for an axis of seconds."""
    raw = (high - low) / max(1, count)
    units = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
    step = next((unit for unit in units if unit >= raw), 86400 * max(1, ceil(raw / 86400)))
    return [(n * step, short_duration(n * step)) for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def short_duration(seconds: float) -> str:
    """Formats a duration for an axis: "45s", "2m", "1m 30s", "3h", "2d"."""
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f" {rest}{name}" if rest else "")
    return f"{whole}s"


def value_ticks(low: float, high: float, count: int, unit: Unit = "") -> Ticks:
    """Returns about `count` round ticks of a linear axis."""
    values = nice_ticks(low, high, count)
    return list(zip(values, axis_labels(values, unit), strict=True))


def log_ticks(low: float, high: float, count: int, unit: Unit = "") -> Ticks:
    """Returns decades, with 2 and 5 between them where there are few; positions are decimal logarithms."""
    factors = (1,) if high - low > 3 else (1, 2, 5)
    decades = range(floor(low), ceil(high) + 1)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    values = [value for value in values if low <= log10(value) <= high]
    if len(values) < 2:
        # Over a range this small the axis is almost linear.
        return [(log10(value), label) for value, label in value_ticks(10**low, 10**high, count, unit) if value > 0]
    kept = values[:: ceil(len(values) / max(2, count))]
    return [(log10(value), label) for value, label in zip(kept, log_labels(kept, unit), strict=True)]


def nice_ticks(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """Returns about `count` round numbers from `low` to `high`, `least` or more apart, two at least if possible."""
    span = high - low
    if span <= 0 or not isfinite(span):
        return [low]
    step = round_step(max(span / max(1, count), least))
    ticks: list[float] = []
    for _ in range(4):
        ticks = [number * step for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
        smaller = round_step(step / 2.5)
        # A single number does not show the scale.
        if len(ticks) > 1 or smaller < least:
            break
        step = smaller
    return ticks
