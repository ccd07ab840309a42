"""One frame of the chart."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.bench.long_run import EPOCH, Run
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.chart import ChartOptions, build_chart, frame
from tuiapp.view.raster import rasterize

COLUMNS, ROWS = 110, 30


def _milliseconds(draw: Callable[[], object], times: int = 50) -> float:
    draw()
    began = time.process_time()
    for _ in range(times):
        draw()
    return (time.process_time() - began) / times * 1e3


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
    print(f"drawn                 {_milliseconds(lambda: rasterize(chart, COLUMNS, ROWS)):.2f} ms")
    print(f"its axes              {_milliseconds(lambda: frame(chart, COLUMNS, ROWS)):.2f} ms")
