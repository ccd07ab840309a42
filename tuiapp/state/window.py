"""The visible part of a chart's lower axis."""

from __future__ import annotations

from typing import TypeAlias

Window: TypeAlias = tuple[float, float | None]  # its length, and its end; None: at the newest value
ZOOM = 0.5  # factor of the visible length per zoom step


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
