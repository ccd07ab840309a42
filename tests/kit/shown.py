"""Whether screens and charts show all that they have, and what they show."""

from __future__ import annotations

from typing import Any

from textual.app import App

from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.metrics_grid import MetricsGrid
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.log_view import LogRows, LogView


def is_read(screen: CompareScreen) -> bool:
    """All runs are read, and drawn for the plot's present size."""
    with screen._feed.lock:
        shown = screen._seen == screen._feed.version and not screen._source.is_reading
        return shown and is_current(screen.chart)


def is_drawn(grid: MetricsGrid) -> bool:
    """All that is visible is drawn."""
    return grid.is_mounted and all(is_current(chart) for chart in grid.visible_charts)


def is_current(panel: ChartPanel) -> bool:
    """There is nothing to draw."""
    return not (panel.region.area and (panel.has_news or panel.is_due))


def shown_lines(log: LogView) -> list[str]:
    """The displayed rows without time and rank."""
    return log.query_one(LogRows).texts()


def notices(app: App[Any]) -> str:
    return "\n".join(note.message for note in app._notifications)
