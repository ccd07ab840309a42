"""A chart as lines of text, for what verbs print: braille without colours, numbers at two axes."""

from __future__ import annotations

from tuiapp.view.axes import LABEL_CELLS
from tuiapp.view.chart import Chart
from tuiapp.view.raster import rasterize


def plain_chart(chart: Chart, columns: int, rows: int, x_label: str) -> list[str]:
    """Returns a chart, drawn for `2 * columns` dots, in lines of at most `LABEL_CELLS + 2 + columns` cells."""
    cells = rasterize(chart, columns, rows)
    labels = [""] * rows
    low, high = chart.y_range
    for value, label in chart.y_ticks:
        labels[min(rows - 1, max(0, round((high - value) / (high - low) * (4 * rows - 1)) // 4))] = label
    lines = [
        f"{label[:LABEL_CELLS]:>{LABEL_CELLS}} {'┤' if label else '│'}{''.join(map(chr, row)).rstrip()}"
        for label, row in zip(labels, cells.characters.tolist(), strict=True)
    ]
    axis, numbers = ["─"] * columns, [" "] * columns
    left, right = chart.x_range
    free = 0
    for x, label in chart.x_ticks:
        place = round((x - left) / (right - left) * (2 * columns - 1)) // 2
        start = max(0, min(columns - len(label), place - len(label) // 2))
        # Two numbers must not run into each other.
        if 0 <= place < columns and start >= free:
            axis[place] = "┬"
            numbers[start : start + len(label)] = label
            free = start + len(label) + 1
    margin = " " * LABEL_CELLS
    return [*lines, f"{margin} └{''.join(axis)}", f"{margin}  {''.join(numbers).rstrip()}  {x_label}"]
