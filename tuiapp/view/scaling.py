"""A scaling study in words, and its curve against the ideal line."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import numpy as np

from tuiapp.trainers.experiments.group_study import GroupStudy
from tuiapp.trainers.experiments.measured import Measured
from tuiapp.trainers.experiments.scaling import ScalingRow, scaling_rows, unit_of
from tuiapp.trainers.state.text import MISSING, format_bytes, format_count, format_percent
from tuiapp.view.chart import BAND, Chart, Curve
from tuiapp.view.sheet import Sheet, busy_notes, counted_words, missing_notes, rate_words, spread_words

MARGIN = 12
"""Columns of dots at the right, for the curves' names."""
SPEEDUPS = tuple(factor * 2**power for power in range(-4, 14) for factor in (1, 1.25, 1.5, 1.75))
"""Numbers for the axis."""


def scaling_sheet(name: str, study: GroupStudy, runs: Sequence[Measured]) -> tuple[Sheet, list[ScalingRow]]:
    """Returns the table of a scaling study, and its rows."""
    rows, unit = scaling_rows(runs, weak=study.weak), unit_of(runs)
    mode = "weak" if study.weak else "strong"
    heads = ("devices", "batch", "runs", unit, "spread", "speed-up", "efficiency", "waiting", "data wait", "memory")
    sheet = Sheet(
        f"Scaling study {name} ({mode})",
        heads,
        [_cells(row) for row in rows],
        [_facts(name, mode, unit, row) for row in rows],
        [*_notes(study, unit, rows), *busy_notes(runs), *missing_notes(runs)],
    )
    return sheet, rows


def _cells(row: ScalingRow) -> tuple[str, ...]:
    return (
        str(row.devices),
        format_count(row.batch) if row.batch else MISSING,
        counted_words(row.runs),
        rate_words(row.throughput),
        spread_words(row.throughput),
        f"{row.speedup.median:.2f}×" if row.speedup else MISSING,
        format_percent(row.efficiency),
        format_percent(row.waiting, 1),
        format_percent(row.data_wait, 1),
        format_bytes(row.memory_bytes),
    )


def _facts(name: str, mode: str, unit: str, row: ScalingRow) -> dict[str, object]:
    return {
        "study": name,
        "mode": mode,
        "devices": row.devices,
        "global_batch_size": row.batch,
        "runs": len(row.runs),
        "counted": row.counted,
        "unit": unit,
        "throughput": row.throughput and row.throughput.median,
        "throughput_least": row.throughput and row.throughput.least,
        "throughput_most": row.throughput and row.throughput.most,
        "speedup": row.speedup and row.speedup.median,
        "speedup_least": row.speedup and row.speedup.least,
        "speedup_most": row.speedup and row.speedup.most,
        "ideal": row.ideal,
        "efficiency": row.efficiency,
        "waiting": row.waiting,
        "data_wait": row.data_wait,
        "memory_bytes": row.memory_bytes,
    }


def _notes(study: GroupStudy, unit: str, rows: Sequence[ScalingRow]) -> list[str]:
    steady = "after the first epoch, or the first tenth of the steps, without evaluations and checkpoints"
    if unit == "steps/s":
        steady = "by the clock after the first tenth of its steps"
    least = rows[0].devices if rows else 1
    notes = [
        f"{unit}: median of the runs, each {steady}; spread: half of the range over the median",
        f"speed-up over {least} device{'s' if least > 1 else ''}; efficiency: speed-up over the linear one",
    ]
    if study.weak:
        notes.append(
            "weak scaling: the global batch grows with the devices, and with `learning_rate_for` the learning rate"
        )
    if any(row.waiting is not None for row in rows):
        notes.append("waiting: part of a step in which ranks waited for the gradients of the others, as DDP times it")
    elif any(row.counted for row in rows):
        notes.append("waiting is not known: only backends with DDP on two ranks or more tell it")
    return notes


def scaling_chart(rows: Sequence[ScalingRow], *, columns: int, lines: int, margin: int = MARGIN) -> Chart | None:
    """Draws speed-up over devices, both logarithmic: the ideal one is a straight line, dotted; None for a single point.

    The measured curve's bounds are the least and the greatest speed-up. `columns` are of dots, `lines` of cells.
    """
    known = [(row.ideal, row.speedup) for row in rows if row.speedup]
    if len(known) < 2:
        return None
    right = log2(max(row.ideal for row in rows))
    last = columns - 1 - margin
    low, middle, high, ideal, breaks = (np.full(columns, np.nan) for _ in range(5))
    breaks[:] = 0.0
    for factor, speedup in known:
        place = round(log2(factor) / right * last)
        low[place], middle[place], high[place] = (log2(value) for value in speedup[1::-1] + speedup[2:3])
    ideal[[0, last]] = 0.0, right
    bottom, top = min(0.0, float(np.nanmin(low))), max(right, float(np.nanmax(high)))
    pad = 0.04 * (top - bottom)
    chart = Chart(
        curves=[Curve("measured", 0, middle, low, high, breaks)],
        raw=[Curve("linear", BAND, ideal, ideal, ideal, breaks)],
        x_range=(0.0, right * (columns - 1) / last),
        y_range=(bottom - pad, top + pad),
    )
    chart.x_ticks = [(log2(row.ideal), str(row.devices)) for row in rows]
    places = [(log2(value), f"{value:g}×") for value in SPEEDUPS if bottom - pad <= log2(value) <= top + pad]
    # The powers of two, and what is between them as long as there is room.
    chart.y_ticks = places if len(places) <= lines * 2 // 3 else [one for one in places if one[0] == round(one[0])]
    return chart
