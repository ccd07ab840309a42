"""Where a chart's axes begin and end, and which numbers stand on them."""

from __future__ import annotations

from math import ceil, floor, isfinite, log10

from tuiapp.state.axis_labels import Unit, axis_labels, log_labels

Ticks = list[tuple[float, str]]

PARTS = 8
"""Into about how many steps the span of an axis is divided whose end is rounded: at most one of them stays empty."""


def round_up(value: float, span: float) -> float:
    """The next round number from a value on: an axis that ends there stands still while a curve grows.

    Args:
        value: Where the curve ends.
        span: How much the axis shows.
    """
    step = round_step(span / PARTS)
    return ceil(value / step - 1e-9) * step


def round_step(raw: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below a number."""
    if raw <= 0 or not isfinite(raw):
        return 1.0
    power = 10.0 ** floor(log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


def value_range(low: float, high: float, *, from_zero: bool) -> tuple[float, float]:
    """Round limits around values.

    Args:
        low: The least value.
        high: The greatest.
        from_zero: Begin at 0 unless the values are far from it.
    """
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
        pad = abs(high) * 0.1 or 0.01
        return low - pad, high + pad
    step = round_step((high - low) / 20)
    bottom, top = floor(low / step) * step, ceil(high / step) * step
    return (0.0 if from_zero and 0 <= low < high / 2 else bottom), top


def step_ticks(low: float, high: float, count: int) -> Ticks:
    """Whole numbers on an axis of steps."""
    return [(x, f"{x:,.0f}") for x in nice_ticks(low, high, count, least=1.0)]


def time_ticks(low: float, high: float, count: int) -> Ticks:
    """Round durations on an axis of seconds."""
    raw = (high - low) / max(1, count)
    units = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
    step = next((unit for unit in units if unit >= raw), 86400 * max(1, ceil(raw / 86400)))
    return [(n * step, short_duration(n * step)) for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def short_duration(seconds: float) -> str:
    """A duration for an axis: "45s", "2m", "1m 30s", "3h", "2d"."""
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f" {rest}{name}" if rest else "")
    return f"{whole}s"


def value_ticks(low: float, high: float, count: int, unit: Unit = "") -> Ticks:
    """Round numbers on a linear axis.

    Args:
        low: Where the axis begins.
        high: Where it ends.
        count: How many there is room for.
        unit: Of the values.
    """
    values = nice_ticks(low, high, count)
    return list(zip(values, axis_labels(values, unit), strict=True))


def log_ticks(low: float, high: float, count: int, unit: Unit = "") -> Ticks:
    """Decades, with 2 and 5 between them where there are few; positions are decimal logarithms."""
    factors = (1,) if high - low > 3 else (1, 2, 5)
    decades = range(floor(low), ceil(high) + 1)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    values = [value for value in values if low <= log10(value) <= high]
    if len(values) < 2:
        # Within so little the axis is all but linear.
        return [(log10(value), label) for value, label in value_ticks(10**low, 10**high, count, unit) if value > 0]
    kept = values[:: ceil(len(values) / max(2, count))]
    return [(log10(value), label) for value, label in zip(kept, log_labels(kept, unit), strict=True)]


def nice_ticks(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """About `count` round numbers from `low` to `high`, two at least unless `least` forbids it.

    Args:
        low: Where the axis begins.
        high: Where it ends.
        count: How many there is room for.
        least: The smallest distance between two.
    """
    span = high - low
    if span <= 0 or not isfinite(span):
        return [low]
    step = round_step(max(span / max(1, count), least))
    ticks: list[float] = []
    for _ in range(4):
        ticks = [number * step for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
        smaller = round_step(step / 2.5)
        # One number alone says nothing of the scale.
        if len(ticks) > 1 or smaller < least:
            break
        step = smaller
    return ticks
