"""Histories as filled curves in braille, several rows high."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuiapp.state.devices.gpu import HISTORY

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)  # a cell's left column, filled from below to 0 … 4 dots
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_BRAILLE = 0x2800
AXIS = ("┤", "│")  # what a label at the left of a graph ends with
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def graph(values: Iterable[float | None], width: int, rows: int, top: float) -> list[str]:
    """Returns `rows` lines of exactly `width` cells, the newest value at the right.

    A value takes a column of dots, or a whole cell where the history would not fill the width; `top` is the full
    height. A value of 0 is a dot, a missing one a gap.
    """
    fits = samples_across(width)
    each = 2 * width // fits if fits else 1
    recent = list(values)[-fits:] if fits else []
    dots = [max(value is not None, _dots(value, 4 * rows, top)) for value in recent for _ in range(each)]
    dots = [0] * (2 * width - len(dots)) + dots
    pairs = list(zip(dots[::2], dots[1::2], strict=True))
    return ["".join(_cell(left - base, right - base) for left, right in pairs) for base in range(4 * rows - 4, -1, -4)]


def samples_across(width: int) -> int:
    """Returns how many values a graph of `width` cells has."""
    return max(0, 2 * width if 2 * width <= HISTORY else width)


def columns(values: Sequence[float], cells: int, gap: int, rows: int, top: float) -> list[str]:
    """Returns `rows` lines with a column of `cells` cells for each value, `gap` blanks between two of them."""
    eighths = [_dots(value, 8 * rows, top) for value in values]
    return [
        (" " * gap).join(_EIGHTHS[max(0, min(8, height - base))] * cells for height in eighths)
        for base in range(8 * (rows - 1), -1, -8)
    ]


def axis(rows: int, top: str, bottom: str = "0") -> list[str]:
    """Returns the labels at the left of a graph: the ends of its scale."""
    cells = max(len(top), len(bottom))
    if rows == 1:
        return [f"{top:>{cells}}┤"]
    return [f"{top:>{cells}}┤", *[f"{'':>{cells}}│"] * (rows - 2), f"{bottom:>{cells}}┤"]


def _dots(value: float | None, height: int, top: float) -> int:
    return max(0, min(height, round(value / top * height))) if value is not None and top > 0 else 0


def _cell(left: int, right: int) -> str:
    dots = _LEFT[max(0, min(4, left))] + _RIGHT[max(0, min(4, right))]
    return chr(_BRAILLE + dots) if dots else " "
