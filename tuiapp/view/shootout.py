"""A shoot-out in words."""

from __future__ import annotations

from collections.abc import Sequence

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.experiments.group_study import GroupStudy
from tuiapp.trainers.experiments.measured import Measured
from tuiapp.trainers.experiments.shootout import WINDOWS, ShootoutRow, shootout_rows
from tuiapp.trainers.state.known_metrics import format_accuracy
from tuiapp.trainers.state.text import (
    MISSING,
    format_bytes,
    format_metric,
    format_seconds,
    join_words,
    plural,
    sanitize,
    without_directories,
)
from tuiapp.view.sheet import Sheet, busy_notes, counted_words, missing_notes, rate_words, spread_words


def shootout_sheet(name: str, study: GroupStudy, runs: Sequence[Measured]) -> tuple[Sheet, list[ShootoutRow]]:
    """Returns the table of a shoot-out, and its rows."""
    rows = shootout_rows(runs, study.order)
    heads = (
        "backend", "runs", "examples/s", "spread", "first step", "memory",
        "loss", "test loss", "accuracy", "difference",
    )  # fmt: skip
    same = next((join_words(_same(run.info.config)) for run in runs if run.info.config), "")
    sheet = Sheet(
        f"Shoot-out {name}",
        heads,
        [_cells(row) for row in rows],
        [_facts(name, row) for row in rows],
        [*([same] if same else []), *_notes(study, rows), *busy_notes(runs), *missing_notes(runs)],
    )
    return sheet, rows


def _same(config: RunConfig) -> list[str]:
    """What all runs have in common."""
    names = [sanitize(without_directories(one), 60) for one in (config.model, config.dataset)]
    devices = f"{plural(config.devices, 'device')} ({config.platform})"
    batch = f"global batch {config.global_batch_size:,}"
    return [*names, devices, batch, config.optimizer, config.precision, f"seed {config.seed}"]


def _cells(row: ShootoutRow) -> tuple[str, ...]:
    return (
        row.backend,
        counted_words(row.runs),
        rate_words(row.throughput),
        spread_words(row.throughput),
        format_seconds(row.first_step_s.median) if row.first_step_s else MISSING,
        format_bytes(row.memory_bytes),
        format_metric(row.loss),
        format_metric(row.test_loss),
        format_accuracy(row.accuracy, 2),
        format_metric(row.difference),
    )


def _facts(name: str, row: ShootoutRow) -> dict[str, object]:
    return {
        "study": name,
        "backend": row.backend,
        "runs": len(row.runs),
        "counted": sum(run.is_whole for run in row.runs),
        "examples_per_second": row.throughput and row.throughput.median,
        "examples_per_second_least": row.throughput and row.throughput.least,
        "examples_per_second_most": row.throughput and row.throughput.most,
        "first_step_s": row.first_step_s and row.first_step_s.median,
        "first_step_s_least": row.first_step_s and row.first_step_s.least,
        "first_step_s_most": row.first_step_s and row.first_step_s.most,
        "memory_bytes": row.memory_bytes,
        "loss": row.loss,
        "test_loss": row.test_loss,
        "test_accuracy": row.accuracy,
        "difference": row.difference,
    }


def _notes(study: GroupStudy, rows: Sequence[ShootoutRow]) -> list[str]:
    notes = [
        "examples/s: median of the runs, each after the first epoch, or the first tenth of the steps, without "
        "evaluations and checkpoints; spread: half of the range over the median",
        "first step: from the start of the run to the end of its first step, with imports and compiling",
        "memory: the most at once; on the CPU the resident memory of all ranks, pages that they share counted for each",
    ]
    if len(rows) > 1:
        notes.append(
            f"difference: the largest between its loss curve and that of {rows[0].backend}, of means over 1/{WINDOWS} "
            "of the steps"
        )
    return notes + [f"left out: {sanitize(name)}: {sanitize(why)}" for name, why in study.left_out.items()]
