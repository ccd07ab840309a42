"""`tuiapp shootout`: the same training on every backend that can run here."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.interpreters import find_interpreter
from tuiapp.trainers.config.machine import Machine, inspect_machine, unused
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.experiments.study import Study, StudyError, runs_of_group
from tuiapp.trainers.experiments.sweep import Planned
from tuiapp.trainers.state.text import plural
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.measured_studies import (
    carry_out,
    check_show,
    drawn,
    print_study,
    read_study,
    targets,
    write_files,
)
from tuiapp.verbs.output import tell
from tuiapp.verbs.queue import queue_checks
from tuiapp.verbs.sources import read_source, runs_dir
from tuiapp.view.measured import measure

VERB = "shootout"


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
    given = {setting.partition("=")[0].strip() for setting in options.settings}
    if "backend" in given:
        raise UsageError("--set backend is one backend: leave it out, --backends has all of them.")
    base = read_source(options.source, options.settings)
    if not BACKENDS[base.backend].builtin:
        raise UsageError("A script has one framework, its own: a shoot-out is of presets and configuration files.")
    fixed = [] if "devices" in given else [f"devices={_devices(base, machine)}"]
    # The table has the last evaluation alone; what is saved is deleted with the runs.
    fixed += [f"{key}=0" for key in ("eval_every", "checkpoint_every") if key not in given]
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
    from tuiapp.view.shootout import shootout_sheet

    runs = [measure(run) for run in runs_of_group(directory, name)]
    sheet, rows = shootout_sheet(name, study, runs)
    write_files(files, sheet, [row.shown for row in rows], "", force=options.force)
    curves = [(chr(ord("a") + place), place, row.shown.curves) for place, row in enumerate(rows)]
    legend = "loss: " + "  ".join(f"{letter} {row.backend}" for (letter, *_), row in zip(curves, rows, strict=True))
    lines = drawn(
        lambda columns, lines: build_comparison(curves, ChartOptions(), columns=columns, rows=lines), "step", legend
    )
    return print_study(options, sheet, runs, {"study": name, "kind": VERB, "left_out": study.left_out}, lines)
