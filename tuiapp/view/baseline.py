"""What runs came to against a baseline, another run of the list."""

from __future__ import annotations

import math
from dataclasses import replace

from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import MISSING
from tuiapp.view.table import Column, Figure

MINUS = "−"

LEAST_CELLS = 9
"""Least cells of a difference."""


def against(column: Column[RunInfo], baseline: RunInfo) -> Column[RunInfo]:
    """Returns a column with differences to the baseline's results: "+0.9 pp", "−3.1 %"; the baseline has its own."""
    if part := column.part:

        def own(info: RunInfo) -> tuple[int, Column[RunInfo]]:
            return part(info)[0], against(part(info)[1], baseline)

        return replace(column, part=own, cell=lambda info: own(info)[1].cell(info))
    figure = column.figure
    if figure is None or (base := figure.value(baseline)) is None or (figure.is_relative and not base):
        return column
    value, of, is_relative = figure.value, figure.words, figure.is_relative

    def difference(info: RunInfo) -> float | None:
        found = value(info)
        if found is None:
            return None
        return (found - base) / abs(base) if is_relative else found - base

    def amount(size: float) -> str:
        # Shares are said in per cent, their differences in points of it.
        return f"{100 * size:.1f} %" if is_relative else of(size).replace(" %", " pp")

    def words(found: float | None) -> str:
        if found is None or not math.isfinite(found):
            return MISSING
        return f"{MINUS if found < 0 else '+'}{amount(abs(found))}" if found else "="

    def cell(info: RunInfo) -> str:
        found = difference(info)
        return column.cell(info) if found is None or info.directory == baseline.directory else words(found)

    return replace(
        column,
        cell=cell,
        width=max(column.width, LEAST_CELLS),
        figure=Figure(difference, words, deviation=figure.deviation or amount, rises=figure.rises),
    )
