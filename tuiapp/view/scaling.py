"""A scaling study in words."""

from __future__ import annotations

from collections.abc import Sequence

from trainers.experiments.group_study import GroupStudy
from trainers.experiments.measured import Measured
from trainers.experiments.scaling import ScalingRow, scaling_rows, unit_of
from trainers.state.text import MISSING, format_bytes, format_count, format_percent
from tuiapp.view.study import Sheet, counted_words, missing_notes, rate_words, spread_words


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
        [*_notes(study, unit, rows), *missing_notes(runs)],
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
    least = rows[0].devices if rows else 1
    notes = [
        f"{unit}: median of the runs, each {steady}; spread: half of the range over the median",
        f"speed-up over {least} device{'s' if least > 1 else ''}; efficiency: speed-up over the linear one",
    ]
    if study.weak:
        notes.append("weak scaling: the global batch grows with the devices; the learning rate stays as it is")
    if any(row.waiting is not None for row in rows):
        notes.append("waiting: part of a step in which ranks waited for the gradients of the others, as DDP times it")
    elif rows:
        notes.append("waiting is not known: only backends with DDP on two ranks or more tell it")
    return notes
