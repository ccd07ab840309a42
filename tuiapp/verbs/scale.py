"""`tuiapp scale`: how a training gets faster with more devices."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from msgspec.structs import replace

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.learning_rate import rate_words
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.run_config import RunConfig, with_global_batch
from tuiapp.trainers.experiments.study import Study, runs_of_group
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
from tuiapp.verbs.queue import queue_checks
from tuiapp.verbs.sources import read_source, runs_dir
from tuiapp.view.measured import measure, unit_of

VERB = "scale"


def study_scaling(options: Namespace) -> int:
    """Runs a study and prints its table, or prints that of an earlier one."""
    files = targets(options)
    if options.show:
        check_show(options, VERB)
        return _print(options, options.show, files)
    machine = inspect_machine()
    counts = options.devices or _usual_counts(machine)
    if len(counts) < 2:
        raise UsageError("One number of devices alone shows no scaling: give several, as --devices 1,2.")
    plans = [_plan(options, devices, counts[0], machine) for devices in counts]
    labels = [plural(devices, "device") for devices in counts]
    name = carry_out(options, Study(kind="scale", weak=options.weak), plans, labels, machine)
    return _print(options, name, files)


def _usual_counts(machine: Machine) -> list[int]:
    """Returns 1, 2, 4 … up to what the machine has."""
    most = sum(gpu.part is None for gpu in machine.gpus) or machine.cpu_cores
    return [count for count in (2**power for power in range(11)) if count <= most]


def _plan(options: Namespace, devices: int, fewest: int, machine: Machine) -> Planned:
    """Returns the configuration for a number of devices; raises ConfigError if it cannot run here."""
    checks, settings = queue_checks(machine), list(options.settings)
    given = {setting.partition("=")[0].strip() for setting in settings}
    if "devices" in given:
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
    quiet = [f"{key}=0" for key in ("eval_every", "checkpoint_every") if key not in given]
    settings += [*quiet, f"devices={devices}", f"global_batch_size={batch}"]
    if options.steps:
        settings += [f"max_steps={options.steps}", f"epochs={_epochs(base, batch, options.steps)}"]
    config = read_source(options.source, settings, checks)
    rate = rate_words(config) or f"stays {base.learning_rate:g}"
    return Planned(config, f"{note}, global batch {batch:,}{f'; the learning rate {rate}' if options.weak else ''}")


def _epochs(config: RunConfig, batch: int, steps: int) -> int:
    """Returns how many epochs have that many steps; those of the configuration if the data are not known yet."""
    try:
        each = find_dataset(config.dataset, config.context).train_examples // batch
    except DatasetError:
        return config.epochs
    return -(-steps // max(1, each))


def _print(options: Namespace, name: str, files: dict[str, Path]) -> int:
    directory = runs_dir(options)
    study = read_study(directory, name, VERB)
    # They need numpy.
    from tuiapp.view import figure
    from tuiapp.view.scaling import scaling_chart, scaling_sheet

    runs = [measure(run) for run in runs_of_group(directory, name)]
    sheet, rows = scaling_sheet(name, study, runs)
    chart = scaling_chart(rows, columns=figure.COLUMNS, lines=figure.ROWS, margin=0)
    picture = figure.draw_scaling(chart, unit_of(runs)) if chart else ""
    write_files(files, sheet, [row.shown for row in rows], picture, force=options.force)
    legend = "speed-up: solid as measured, as thick as its spread; dotted if it were linear"
    lines = drawn(lambda columns, lines: scaling_chart(rows, columns=columns, lines=lines), "devices", legend)
    return print_study(options, sheet, runs, {"study": name, "kind": VERB}, lines)
