"""One frame of the chart in two ways: plotext drawing the curves, and numpy drawing their cells."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import plotext

from tests.bench.long_run import EPOCH, Run
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.chart import Chart, ChartOptions, build_chart
from tuiapp.view.frame import BOTTOM_CELLS, LEFT_CELLS
from tuiapp.view.raster import rasterize

COLUMNS, ROWS = 110, 30


def _milliseconds(draw: Callable[[], object], times: int = 50) -> float:
    draw()
    began = time.process_time()
    for _ in range(times):
        draw()
    return (time.process_time() - began) / times * 1e3


def _with_plotext(chart: Chart) -> str:
    assert chart.band is not None
    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(LEFT_CELLS + COLUMNS, ROWS + BOTTOM_CELLS)
    plotext.xlim(*chart.x_range)
    plotext.ylim(*chart.y_range)
    x = np.linspace(*chart.x_range, chart.columns)
    for values in (chart.band.low, chart.band.high, chart.curves[0].middle):
        known = ~np.isnan(values)
        plotext.plot(x[known].tolist(), values[known].tolist(), marker="braille")
    return str(plotext.build())


def time_drawing() -> None:
    """Print the processor time of a frame of eight ranks: mean and band, each of 220 points."""
    state, run = RunState("drawn"), Run(20 * EPOCH, 0.0)
    events: list[AnyEvent] = [*run.beginning("drawn")]  # type: ignore[list-item]
    for first in range(1, 20 * EPOCH, 40):
        events += run.flush(first)  # type: ignore[arg-type]
    for event in events:
        apply(state, event)
    look = ChartOptions(smoothing=0.6)
    chart = build_chart(state, look, columns=2 * COLUMNS, rows=ROWS)
    reduced = _milliseconds(lambda: build_chart(state, look, columns=2 * COLUMNS, rows=ROWS))
    print(f"eight ranks reduced   {reduced:.2f} ms")
    print(f"drawn by plotext      {_milliseconds(lambda: _with_plotext(chart)):.2f} ms")
    print(f"drawn by numpy        {_milliseconds(lambda: rasterize(chart, COLUMNS, ROWS)):.2f} ms")
