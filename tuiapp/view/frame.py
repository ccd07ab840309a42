"""A chart's frame: its two axes with their numbers."""

from __future__ import annotations

from math import floor

from tuiapp.view.axes import LABEL_CELLS
from tuiapp.view.chart import Chart

LEFT_CELLS, BOTTOM_CELLS = LABEL_CELLS + 1, 2


def frame(chart: Chart, columns: int, rows: int) -> list[str]:
    """Returns `rows` lines with the axis of values, then the lower axis; `LEFT_CELLS` before `columns` free cells.

    A number of the lower axis that has no room beside those before it is left out, with its tick.
    """
    values = {cell_at(y, chart.y_range, rows): label[:LABEL_CELLS] for y, label in chart.y_ticks}
    lines = [
        f"{values.get(row, ''):>{LABEL_CELLS}}{'┤' if row in values else '│'}{' ' * columns}"
        for row in reversed(range(rows))
    ]
    width = LEFT_CELLS + columns
    line, numbers = ["─"] * width, [" "] * width
    for x, label in chart.x_ticks:
        place, size = LEFT_CELLS + cell_at(x, chart.x_range, columns), len(label)
        near = [at for at in range(max(0, place - size + 1), min(place + size, width - 1)) if numbers[at] == " "]
        # Beneath its tick, or as near as the ends of the line and other numbers let it.
        start = (near[0] + near[-1] + 1 - size) // 2 if near else place
        if 0 <= start <= width - size and set(numbers[max(0, start - 1) : start + size + 1]) == {" "}:
            numbers[start : start + size] = label
            line[min(place, width - 1)] = "┬"
    return [*lines, f"{'':{LABEL_CELLS}}└{''.join(line[LEFT_CELLS:])}", "".join(numbers)]


def cell_at(value: float, limits: tuple[float, float], cells: int) -> int:
    """Returns the cell of a value on an axis whose limits are in the middle of the first and the last one."""
    low, high = limits
    # What is halfway must not depend on how floats are rounded.
    return floor(round((value - low) / (high - low) * (cells - 1) + 0.5, 8))
