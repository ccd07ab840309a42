"""A chart's frame: its two axes with their numbers, drawn by plotext as those of an empty plot."""

from __future__ import annotations

import re

from tuiapp.view.axes import LABEL_CELLS
from tuiapp.view.chart import Chart

LEFT_CELLS, BOTTOM_CELLS = LABEL_CELLS + 1, 2
_ESCAPES = re.compile("\x1b\\[[0-9;]*m")


def frame(chart: Chart, columns: int, rows: int) -> list[str]:
    """Returns `rows` lines with the axis of values, then the lower axis; `LEFT_CELLS` before `columns` free cells."""
    # Slow to import: deferred until there is a chart.
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(LEFT_CELLS + columns, rows + BOTTOM_CELLS)
    plotext.xaxes(True, False)
    plotext.yaxes(True, False)
    plotext.xlim(*chart.x_range)
    plotext.ylim(*chart.y_range)
    plotext.xticks([x for x, _ in chart.x_ticks], [label for _, label in chart.x_ticks])
    ticks = chart.y_ticks or [(chart.y_range[0], "")]
    plotext.yticks([y for y, _ in ticks], [label[:LABEL_CELLS].rjust(LABEL_CELLS) for _, label in ticks])
    plotext.scatter([chart.x_range[0]], [chart.y_range[0]], marker=" ")
    return _ESCAPES.sub("", plotext.build()).split("\n")[: rows + BOTTOM_CELLS]
