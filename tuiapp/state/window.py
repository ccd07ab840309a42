"""Which part of a chart's lower axis is in sight."""

from __future__ import annotations

from typing import TypeAlias

Window: TypeAlias = tuple[float, float | None]
"""How much is in sight, and where that ends; None: at the newest."""

ZOOM = 0.5
"""What of the part in sight is left after zooming in."""


def zoomed(
    window: Window | None,
    by: int,
    *,
    x_range: tuple[float, float],
    extent: tuple[float, float],
    place: float | None,
    least: float,
) -> Window | None:
    """The part in sight after zooming; None for all.

    Args:
        window: What it was; None for all.
        by: 1 for less, and that larger; -1 for more.
        x_range: From where to where the axis goes.
        extent: From the first to the last value there is.
        place: What stays where it is; None for the newest, or the right edge.
        least: How much is in sight at least.
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
    """The part in sight after moving.

    Args:
        window: What it was; None for all, which cannot be moved.
        by: How much of what is in sight; below 0 for earlier.
        extent: From the first to the last value there is.
    """
    if window is None:
        return None
    (span, end), (first, last) = window, extent
    moved = (last if end is None else end) + by * span
    return (span, None if moved >= last else max(moved, first + span))


def in_sight(window: Window | None, extent: tuple[float, float]) -> tuple[float, float]:
    """From where to where the lower axis goes: no further than there are values.

    Args:
        window: The part that was asked for; None for all.
        extent: From the first to the last value there is.
    """
    first, last = extent
    if window is None:
        return extent
    span = min(window[0], last - first)
    end = last if window[1] is None else min(max(window[1], first + span), last)
    return end - span, end
