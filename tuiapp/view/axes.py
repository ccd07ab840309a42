"""A chart's axes: limits, ticks and their labels, and the visible part of the lower one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import TypeAlias

from tuiapp.trainers.state.known_metrics import Unit

Ticks: TypeAlias = list[tuple[float, str]]
Window: TypeAlias = tuple[float, float | None]  # its length, and its end; None: at the newest value

PARTS = 8  # steps that the span of an axis with a rounded end is divided into: at most one of them is empty
LABEL_CELLS = 7  # cells: constant, so that the curves do not move
LEAST_PLAIN = 1e-3  # an axis that ends below it shows powers of ten
MOST_DECIMALS = 12
SAME = 1e-6  # relative difference up to which values are drawn as a constant
LOG_PAD = 0.05  # decades around one
ZOOM = 0.5  # factor of the visible length per zoom step


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


def value_range(low: float, high: float, *, log: bool = False) -> tuple[float, float]:
    """Returns round limits around values or, with `log`, decimal logarithms.

    Values start at 0 unless they are far from it. Those that differ by no more than float32 or sums of floats round are
    a constant, in the middle.
    """
    if high - low <= SAME * (1 if log else max(abs(low), abs(high))):
        middle = float(f"{(low + high) / 2:.7g}")
        pad = LOG_PAD if log else abs(middle) * 0.1 or 0.01
        return middle - pad, middle + pad
    step = round_step((high - low) / 20)
    bottom, top = floor(low / step) * step, ceil(high / step) * step
    return (0.0 if not log and 0 <= low < high / 2 else bottom), top


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
    rounded = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if rounded >= size:
            remainder = rounded % size // smaller
            return f"{rounded // size}{unit}" + (f" {remainder}{name}" if remainder else "")
    return f"{rounded}s"


def value_ticks(low: float, high: float, count: int, unit: Unit = "") -> Ticks:
    """Returns about `count` round ticks of a linear axis."""
    values = nice_ticks(low, high, count)
    return list(zip(values, axis_labels(values, unit), strict=True))


def log_ticks(low: float, high: float, count: int, unit: Unit = "") -> Ticks:
    """Returns decades, with 2 and 5 between them if there is room; positions are decimal logarithms."""
    decades = [10.0**power for power in range(floor(low), ceil(high) + 1)]
    values = [factor * decade for decade in decades for factor in (1, 2, 5)]
    decades, values = ([value for value in some if low <= log10(value) <= high] for some in (decades, values))
    if len(values) > max(2, count) and len(decades) > 1:
        values = decades
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


def axis_labels(values: Sequence[float], unit: Unit = "") -> list[str]:
    """Returns the labels of a linear axis for its ticks, in order."""
    top = max(map(abs, values), default=0.0)
    scale, shown = _shown(unit, top)
    scaled = [value * scale for value in values]
    gap = min((after - before for before, after in pairwise(scaled)), default=top * scale / 10)
    return _first_fitting(_forms(scaled, gap, top * scale), shown)


def log_labels(values: Sequence[float], unit: Unit = "") -> list[str]:
    """Returns the labels of a logarithmic axis: in one unit, and all plain or all with a power of ten."""
    scale, shown = _shown(unit, max(values))
    scaled = [value * scale for value in values]
    plain = [f"{value:,.{_decimals([value], value / 10)}f}" for value in scaled]
    powers = [f"{value / 10.0 ** floor(log10(value) + 1e-9):.0f}e{floor(log10(value) + 1e-9)}" for value in scaled]
    return _first_fitting((plain, powers), shown)


def _first_fitting(forms: Iterable[list[str]], unit: str) -> list[str]:
    """Returns the first numbers that fit as labels, with their unit if there is room; the last ones if none do."""
    labels: list[str] = []
    for numbers in forms:
        for ending in (f" {unit}", unit, "") if unit else ("",):
            labels = [f"{number}{ending}" for number in numbers]
            if all(len(label) <= LABEL_CELLS for label in labels):
                return labels
    return labels


def _shown(unit: Unit, top: float) -> tuple[float, str]:
    if unit == "share":
        return (100.0 if top <= 1 else 1.0), "%"
    if unit == "s":
        return (1.0, "s") if top >= 1 else (1e3, "ms") if top >= 1e-3 else (1e6, "µs")
    return 1.0, unit


def _forms(values: Sequence[float], gap: float, top: float) -> Iterator[list[str]]:
    """Yields ways to write numbers, the best first; only the last ones drop digits."""
    decimals = _decimals(values, gap)
    power = max(-300, floor(log10(top))) if top > 0 else 0
    mantissas = [value / 10.0**power for value in values]
    digits = _decimals(mantissas, gap / 10.0**power)
    plain = [f"{value:z,.{decimals}f}" for value in values]
    if top >= LEAST_PLAIN or not top:
        yield plain
    yield _with_power(mantissas, digits, power)
    yield plain
    yield [f"{value:z.{decimals}f}" for value in values]
    for fewer in range(min(digits, LABEL_CELLS), -1, -1):
        yield _with_power(mantissas, fewer, power)


def _with_power(mantissas: Sequence[float], digits: int, power: int) -> list[str]:
    return [f"{mantissa:z.{digits}f}e{power}" if mantissa else "0" for mantissa in mantissas]


def _decimals(values: Sequence[float], gap: float) -> int:
    """Returns the fewest decimals that keep the labels visibly in place between two ticks."""
    for decimals in range(MOST_DECIMALS):
        if all(abs(round(value, decimals) - value) <= gap / 100 for value in values):
            return decimals
    return MOST_DECIMALS


def zoomed(
    window: Window | None,
    by: int,
    *,
    x_range: tuple[float, float],
    extent: tuple[float, float],
    place: float | None,
    least: float,
) -> Window | None:
    """Returns the visible part after zooming; None for all.

    `by` is 1 to zoom in, -1 to zoom out. `x_range` are the axis' limits, `extent` those of the values. `place` stays
    fixed; None for the newest value, or the right edge. `least` is the least visible length.
    """
    (left, right), (first, last) = x_range, extent
    span = min(right, last) - left
    wanted = max(least, span * (ZOOM if by > 0 else 1 / ZOOM))
    if wanted >= last - first:
        return None
    if place is None:
        return (wanted, window[1] if window else None)
    end = place + (right - place) * wanted / max(span, 1e-12)
    return (wanted, None if end >= last else max(end, first + wanted))


def panned(window: Window | None, by: float, extent: tuple[float, float]) -> Window | None:
    """Moves the visible part by a fraction of its length, negative for earlier; None, for all, does not move."""
    if window is None:
        return None
    (span, end), (first, last) = window, extent
    moved = (last if end is None else end) + by * span
    return (span, None if moved >= last else max(moved, first + span))


def in_sight(window: Window | None, extent: tuple[float, float]) -> tuple[float, float]:
    """Returns the limits of the lower axis, within the extent of the values."""
    first, last = extent
    if window is None:
        return extent
    span = min(window[0], last - first)
    end = last if window[1] is None else min(max(window[1], first + span), last)
    return end - span, end
