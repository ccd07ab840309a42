"""`tuiapp shootout`: the same training on every backend that can run here."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.interpreters import find_interpreter
from tuiapp.trainers.config.machine import Machine, inspect_machine, unused
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.experiments.study import Study, StudyError, runs_of_group
from tuiapp.trainers.experiments.sweep import Planned
from tuiapp.trainers.state.curves import ALL, Curves
from tuiapp.trainers.state.known_metrics import format_accuracy
from tuiapp.trainers.state.objective import Spread, median
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
from tuiapp.verbs.measured_studies import (
    carry_out,
    check_show,
    drawn,
    print_study,
    read_study,
    targets,
    write_files,
)
from tuiapp.verbs.output import UsageError, tell
from tuiapp.verbs.queue import queue_checks
from tuiapp.verbs.sources import read_source, runs_dir
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
)

VERB = "shootout"

WINDOWS = 100
"""Parts of a run over whose means two curves are compared: a fast run's journal has several steps in an entry."""


def study_backends(options: Namespace) -> int:
    """Runs a shoot-out and prints its table, or prints that of an earlier one."""
    files = targets(options)
    if options.show:
        check_show(options, VERB)
        return _print(options, options.show, files)
    machine = inspect_machine()
    plans, left_out = _plans(options, machine)
    for backend, why in left_out.items():
        tell(f"left out: {backend}: {why}")
    if not plans:
        raise StudyError("No backend can run this here.")
    order = [plan.config.backend for plan in plans]
    name = carry_out(options, Study(kind="shootout", order=order, left_out=left_out), plans, order, machine)
    return _print(options, name, files)


def _plans(options: Namespace, machine: Machine) -> tuple[list[Planned], dict[str, str]]:
    """Returns a run of each backend that can run it, and why the others cannot.

    Raises ConfigError if a backend that the command names cannot.
    """
    keys = {setting.partition("=")[0].strip() for setting in options.settings}
    if "backend" in keys:
        raise UsageError("--set backend is one backend: leave it out, --backends has all of them.")
    base = read_source(options.source, options.settings)
    if not BACKENDS[base.backend].builtin:
        raise UsageError("A script has one framework, its own: a shoot-out is of presets and configuration files.")
    fixed = [] if "devices" in keys else [f"devices={_devices(base, machine)}"]
    # The table has the last evaluation alone; what is saved is deleted with the runs.
    fixed += [f"{key}=0" for key in ("eval_every", "checkpoint_every") if key not in keys]
    plans, left_out = list[Planned](), dict[str, str]()
    for backend in options.backends or [name for name, row in BACKENDS.items() if row.builtin]:
        # What is installed is asked for; `place` refuses only what is known to be missing.
        find_interpreter(backend, base.python).inspect()
        settings = [*options.settings, *fixed, f"backend={backend}"]
        try:
            config = read_source(options.source, settings, queue_checks(machine))
        except ConfigError as error:
            if options.backends:
                raise
            left_out[backend] = "; ".join(problem.message for problem in error.problems)
            continue
        plans.append(Planned(config, f"shoot-out: {backend} on {plural(config.devices, 'device')}"))
    return plans, left_out


def _devices(config: RunConfig, machine: Machine) -> int:
    """Returns how many devices all backends get: as many as the configuration has with its own backend."""
    try:
        return place(config, unused(machine)).devices
    except ConfigError:
        return config.devices


def _print(options: Namespace, name: str, files: dict[str, Path]) -> int:
    directory = runs_dir(options)
    study = read_study(directory, name, VERB)
    # They need numpy.
    from tuiapp.view.chart import ChartOptions, build_comparison

    runs = [measure(run) for run in runs_of_group(directory, name)]
    sheet, rows = shootout_sheet(name, study, runs)
    write_files(files, sheet, [row.shown for row in rows], "", force=options.force)
    curves = [(chr(ord("a") + index), index, row.shown.curves) for index, row in enumerate(rows)]
    legend = "loss: " + "  ".join(f"{letter} {row.backend}" for (letter, *_), row in zip(curves, rows, strict=True))
    lines = drawn(
        lambda columns, lines: build_comparison(curves, ChartOptions(), columns=columns, rows=lines), "step", legend
    )
    return print_study(options, sheet, runs, {"study": name, "kind": VERB, "left_out": study.left_out}, lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShootoutRow:
    backend: str
    runs: tuple[Measured, ...]
    """All of them, ended or not; those that have not completed count for nothing below."""
    throughput: Spread | None
    first_step_s: Spread | None
    memory_bytes: float | None
    loss: float | None
    """Median of the last steps' losses, as the others are medians."""
    test_loss: float | None
    accuracy: float | None
    difference: float | None
    """The largest difference of its loss curve from the first backend's; None of that itself."""

    @property
    def shown(self) -> Measured:
        """The run whose curves are drawn: the first that counts."""
        return next(iter(completed(self.runs)), self.runs[0])


def shootout_rows(runs: Sequence[Measured], order: Sequence[str] = ()) -> list[ShootoutRow]:
    """Returns the rows of a shoot-out, in an order of backends; others follow."""
    backends = [name for name in dict.fromkeys([*order, *(run.backend for run in runs)]) if name]
    rows: list[ShootoutRow] = []
    first: Curves | None = None
    for backend in backends:
        of_backend = tuple(run for run in runs if run.backend == backend)
        if not of_backend:
            continue
        counted = completed(of_backend)
        curves = counted[0].curves if counted else None
        rows.append(
            ShootoutRow(
                backend=backend,
                runs=of_backend,
                throughput=Spread.of(run.throughput for run in counted),
                first_step_s=Spread.of(run.first_step_s for run in counted),
                memory_bytes=median(run.memory_bytes for run in counted),
                loss=median(run.info.summary.loss for run in counted),
                test_loss=median(run.info.summary.test_loss for run in counted),
                accuracy=median(run.info.summary.test_accuracy for run in counted),
                difference=_loss_difference(first, curves) if first and curves else None,
            )
        )
        if len(rows) == 1:
            first = curves
    return rows


def _loss_difference(first: Curves, second: Curves) -> float | None:
    """Returns the largest difference of two curves of the loss, over the steps that both have; None without any."""
    import numpy as np

    a, b = first[ALL, LOSS], second[ALL, LOSS]
    start, stop = max(a.first_step, b.first_step), min(a.last_step, b.last_step)
    if not len(a) or not len(b) or start > stop:
        return None
    windows = min(WINDOWS, stop - start + 1)
    apart = np.abs(a.reduce(windows, start, stop).mean - b.reduce(windows, start, stop).mean)
    defined = apart[~np.isnan(apart)]
    return float(defined.max()) if len(defined) else None


def shootout_sheet(name: str, study: Study, runs: Sequence[Measured]) -> tuple[Sheet, list[ShootoutRow]]:
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
    """Returns what all runs have in common."""
    names = [sanitize(without_directories(name), 60) for name in (config.model, config.dataset)]
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


def _notes(study: Study, rows: Sequence[ShootoutRow]) -> list[str]:
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
