"""`tuiapp scale`: how a training gets faster with more devices."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.run_config import RunConfig, learning_rate_words, with_global_batch
from tuiapp.trainers.experiments.study import Study, runs_of_group
from tuiapp.trainers.experiments.sweep import Planned
from tuiapp.trainers.state.objective import Spread, median
from tuiapp.trainers.state.text import MISSING, format_bytes, format_count, format_percent, plural
from tuiapp.verbs.measured_studies import (
    carry_out,
    check_show,
    drawn,
    print_study,
    read_study,
    targets,
    write_files,
)
from tuiapp.verbs.output import UsageError
from tuiapp.verbs.queue import queue_checks
from tuiapp.verbs.sources import read_source, runs_dir
from tuiapp.view.chart import BAND, Chart, Curve
from tuiapp.view.measured import (
    Measured,
    Sheet,
    busy_notes,
    completed,
    counted_words,
    measure,
    missing_notes,
    rate_words,
    spread_words,
    unit_of,
)

VERB = "scale"

MARGIN = 12
"""Columns of dots at the right, for the curves' names."""
SPEEDUPS = tuple(factor * 2**power for power in range(-4, 14) for factor in (1, 1.25, 1.5, 1.75))
"""Numbers for the axis."""


def study_scaling(options: Namespace) -> int:
    """Runs a study and prints its table, or prints that of an earlier one."""
    files = targets(options)
    if options.show:
        check_show(options, VERB)
        return _print(options, options.show, files)
    machine = inspect_machine()
    most = sum(gpu.part is None for gpu in machine.gpus) or machine.cpu_cores
    counts = options.devices or [2**power for power in range(11) if 2**power <= most]
    if len(counts) < 2:
        raise UsageError("One number of devices alone shows no scaling: give several, as --devices 1,2.")
    plans = [_plan(options, devices, counts[0], machine) for devices in counts]
    labels = [plural(devices, "device") for devices in counts]
    name = carry_out(options, Study(kind="scale", weak=options.weak), plans, labels, machine)
    return _print(options, name, files)


def _plan(options: Namespace, devices: int, fewest: int, machine: Machine) -> Planned:
    """Returns the configuration for a number of devices; raises ConfigError if it cannot run here."""
    checks, settings = queue_checks(machine), list(options.settings)
    keys = {setting.partition("=")[0].strip() for setting in settings}
    if "devices" in keys:
        raise UsageError("--set devices is one number: leave it out, --devices has all of them.")
    base = read_source(options.source, settings, (), options.arguments)
    note = f"{'weak' if options.weak else 'strong'} scaling, {plural(devices, 'device')}"
    if not BACKENDS[base.backend].builtin:
        if options.steps:
            raise UsageError("--steps is for built-in trainers; give the script its own option after --.")
        config = read_source(options.source, [*settings, f"devices={devices}"], checks, options.arguments)
        return Planned(config, f"{note}; the script has a batch of its own")
    batch = with_global_batch(replace(base, devices=fewest, device_ids=())).global_batch_size
    batch = batch * devices // fewest if options.weak else batch
    # What an evaluation or a checkpoint takes is no part of a step, but of the wait for the table.
    quiet = [f"{key}=0" for key in ("eval_every", "checkpoint_every") if key not in keys]
    settings += [*quiet, f"devices={devices}", f"global_batch_size={batch}"]
    if options.steps:
        settings += [f"max_steps={options.steps}", f"epochs={_epochs(base, batch, options.steps)}"]
    config = read_source(options.source, settings, checks)
    rate = learning_rate_words(config) or f"stays {base.learning_rate:g}"
    return Planned(config, f"{note}, global batch {batch:,}{f'; the learning rate {rate}' if options.weak else ''}")


def _epochs(config: RunConfig, batch: int, steps: int) -> int:
    """Returns how many epochs have that many steps; those of the configuration if the data are not known yet."""
    try:
        steps_per_epoch = find_dataset(config.dataset, config.context).train_examples // batch
    except DatasetError:
        return config.epochs
    return -(-steps // max(1, steps_per_epoch))


def _print(options: Namespace, name: str, files: dict[str, Path]) -> int:
    directory = runs_dir(options)
    study = read_study(directory, name, VERB)
    # They need numpy.
    from tuiapp.view import figure

    runs = [measure(run) for run in runs_of_group(directory, name)]
    sheet, rows = scaling_sheet(name, study, runs)
    chart = scaling_chart(rows, columns=figure.COLUMNS, lines=figure.ROWS, margin=0)
    picture = figure.draw_scaling(chart, unit_of(runs)) if chart else ""
    write_files(files, sheet, [row.shown for row in rows], picture, force=options.force)
    legend = "speed-up: solid as measured, as thick as its spread; dotted if it were linear"
    lines = drawn(lambda columns, lines: scaling_chart(rows, columns=columns, lines=lines), "devices", legend)
    return print_study(options, sheet, runs, {"study": name, "kind": VERB}, lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    devices: int
    runs: tuple[Measured, ...]
    """All of them, ended or not; those that have not completed count for nothing below."""
    ideal: float
    """Speed-up if it were linear."""
    throughput: Spread | None
    speedup: Spread | None
    waiting: float | None
    """Median share of a step in which ranks waited for each other."""
    data_wait: float | None
    memory_bytes: float | None
    """Median."""

    @property
    def efficiency(self) -> float | None:
        """Speed-up over the ideal one."""
        return self.speedup.median / self.ideal if self.speedup else None

    @property
    def counted(self) -> int:
        return len(completed(self.runs))

    @property
    def shown(self) -> Measured:
        """The run whose curves stand for all: of those that count one of median throughput."""
        counted = sorted(completed(self.runs), key=lambda run: run.throughput or 0.0)
        return counted[len(counted) // 2] if counted else self.runs[0]

    @property
    def batch(self) -> int | None:
        """Examples of a step over all devices; None of a script, which knows alone."""
        config = self.runs[0].info.config
        return config.global_batch_size if config and config.backend != "script" else None


def scaling_rows(runs: Sequence[Measured], *, weak: bool = False) -> list[ScalingRow]:
    """Returns the rows of a study, by number of devices.

    With `weak` a step of a script that reports no examples is taken to do as much more work as it has more devices.
    """
    counts = sorted({run.devices for run in runs if run.devices})
    steps = unit_of(runs) == "steps/s"
    rows: list[ScalingRow] = []
    base: float | None = None
    for devices in counts:
        alike = tuple(run for run in runs if run.devices == devices)
        counted = completed(alike)
        ideal = devices / counts[0]
        work = ideal if weak and steps else 1.0
        throughput = Spread.of(run.throughput for run in counted)
        if devices == counts[0] and throughput:
            base = throughput.median
        rates = [run.throughput for run in counted if run.throughput is not None]
        speedup = Spread.of(rate * work / base for rate in rates) if base else None
        rows.append(
            ScalingRow(
                devices=devices,
                runs=alike,
                ideal=ideal,
                throughput=throughput,
                speedup=speedup,
                waiting=median(run.waiting for run in counted),
                data_wait=median(run.data_wait for run in counted),
                memory_bytes=median(run.memory_bytes for run in counted),
            )
        )
    return rows


def scaling_sheet(name: str, study: Study, runs: Sequence[Measured]) -> tuple[Sheet, list[ScalingRow]]:
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


def _notes(study: Study, unit: str, rows: Sequence[ScalingRow]) -> list[str]:
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
    points = [(row.ideal, row.speedup) for row in rows if row.speedup]
    if len(points) < 2:
        return None
    right = log2(max(row.ideal for row in rows))
    last = columns - 1 - margin
    low, middle, high, ideal, breaks = (np.full(columns, np.nan) for _ in range(5))
    breaks[:] = 0.0
    for factor, speedup in points:
        column = round(log2(factor) / right * last)
        low[column], middle[column], high[column] = map(log2, (speedup.least, speedup.median, speedup.most))
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
    ticks = [(log2(value), f"{value:g}×") for value in SPEEDUPS if bottom - pad <= log2(value) <= top + pad]
    # The powers of two, and what is between them as long as there is room.
    chart.y_ticks = ticks if len(ticks) <= lines * 2 // 3 else [tick for tick in ticks if tick[0] == round(tick[0])]
    return chart
