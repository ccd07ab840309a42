"""Whether screens and charts show all that they have, and what they show."""

from __future__ import annotations

from typing import Any

from textual.app import App

from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.metrics_grid import MetricsGrid
from tuiapp.widgets.log_rows import LogRows
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.loss_chart import LossChart


def is_read(screen: CompareScreen) -> bool:
    """All runs are read, and drawn for the plot's present size."""
    plot = screen.chart.plot
    with screen._feed.lock:
        fits = screen._drawn_size == plot.size or not plot.display
        return fits and screen._drawn == screen._feed.version and not screen._is_reading


def is_drawn(grid: MetricsGrid) -> bool:
    """All that is visible is drawn."""
    return grid.is_mounted and not grid._due and not grid._stale


def is_current(chart: LossChart) -> bool:
    return not chart._due or not chart.is_on_screen


def shown_lines(log: LogView) -> list[str]:
    """The displayed rows without time and rank."""
    return log.query_one(LogRows).texts()


def notices(app: App[Any]) -> str:
    return "\n".join(note.message for note in app._notifications)
