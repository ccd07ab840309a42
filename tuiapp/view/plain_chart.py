"""A chart as lines of text, for what verbs print: braille without colours, numbers at two axes."""

from __future__ import annotations

from tuiapp.view.chart import Chart
from tuiapp.view.frame import LEFT_CELLS, frame
from tuiapp.view.raster import rasterize


def plain_chart(chart: Chart, columns: int, rows: int, x_label: str) -> list[str]:
    """Returns a chart, drawn for `2 * columns` dots, in lines of at most `LEFT_CELLS + columns` cells and `x_label`."""
    *axis, line, numbers = frame(chart, columns, rows)
    curves = rasterize(chart, columns, rows).characters.tolist()
    lines = [f"{left[:LEFT_CELLS]}{''.join(map(chr, row))}".rstrip() for left, row in zip(axis, curves, strict=True)]
    return [*lines, line, f"{numbers.rstrip()}  {x_label}"]
