"""Begins studies, goes on with them, and ends them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.machine import Machine, inspect_machine, unused
from tuiapp.trainers.config.options import ConfigError, Problem, shown, suggest
from tuiapp.trainers.config.run_config import RunConfig, best_by, figure_of
from tuiapp.trainers.config.settings import read_settings
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.about import About
from tuiapp.trainers.contract.lock import is_held
from tuiapp.trainers.contract.metrics import LOSS, TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.experiments.holders import cpu_slots
from tuiapp.trainers.experiments.queue import QueueError, cancel, enqueue, start_keeper
from tuiapp.trainers.experiments.space import Axis, all_configs, check_draws, checks_of, combinations, run_name
from tuiapp.trainers.experiments.study import (
    SWEEP,
    Study,
    StudyDir,
    StudyError,
    find_studies,
    lacks_optuna,
    make_study,
    problem,
)
from tuiapp.trainers.launch.directory import working_directory
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.launch.processes import apart, module, start_process
from tuiapp.trainers.state.objective import GUESSED_FROM, guess
from tuiapp.trainers.state.summary import summarise

SEARCH = "tuiapp.trainers.experiments.search"
STORAGE_S = 60.0
"""Within which a database opens: it makes its tables at the first time."""
BUILTIN_METRICS = (TEST_ACCURACY, TEST_LOSS, LOSS)
"""What the built-in trainers can be best by."""


def plan_grid(study: Study, machine: Machine) -> list[tuple[str, RunConfig]]:
    """As `check_grid`, after what a launch checks beside the keys; raises LaunchError, too."""
    pairs = check_grid(study.base, study.read_axes(), machine)
    # It is the same of all that differ in numbers alone.
    for config in _kinds(pairs):
        prepare(config, unused(machine))
    return pairs


def check_grid(base: RunConfig, axes: Sequence[Axis], machine: Machine) -> list[tuple[str, RunConfig]]:
    """Returns each combination's name and configuration; raises ConfigError with the problems of all."""
    combined = combinations(axes)
    configs = all_configs(base, combined, checks_of(machine))
    return [(run_name(values), config) for values, config in zip(combined, configs, strict=True)]


def begin_grid(
    study: Study,
    runs_dir: Path,
    machine: Machine | None = None,
    *,
    held: bool = False,
    tell: Callable[[int, int], None] = lambda done, count: None,
) -> tuple[StudyDir, list[RunDir]]:
    """Queues a run of each combination, in their order, once all are checked.

    Raises ConfigError, LaunchError, StudyError, and then has queued nothing.
    """
    machine = machine or inspect_machine()
    pairs = plan_grid(study, machine)
    place = make_study(runs_dir, study)
    runs = list[RunDir]()
    for number, (name, config) in enumerate(pairs):
        tell(number, len(pairs))
        runs.append(_queue(study, place, name, config, machine, held=held))
    start_keeper(runs_dir)
    return place, runs


def _queue(study: Study, place: StudyDir, name: str, config: RunConfig, machine: Machine, *, held: bool) -> RunDir:
    about = About(name=name, group=place.name, tags=study.tags)
    return enqueue(
        config,
        place.runs_dir,
        about,
        machine=machine,
        priority=study.priority,
        retry=study.retry,
        parallel=study.parallel,
        held=held,
    )


def _kinds(pairs: Sequence[tuple[str, RunConfig]]) -> list[RunConfig]:
    """Returns one configuration of each backend, model, data set, script and interpreter."""
    kinds = {(one.backend, one.model, one.dataset, one.script, one.python): one for _, one in pairs}
    return list(kinds.values())


def missing(place: StudyDir) -> dict[str, RunConfig]:
    """Returns the combinations of a grid that no run has completed or is still to, by name; raises ConfigError."""
    study = place.read()
    combined = combinations(study.read_axes())
    configs = all_configs(study.base, combined)
    wanted = {run_name(values): config for values, config in zip(combined, configs, strict=True)}
    there = [info for info in place.infos() if info.is_live or info.status == "completed"]
    for info in there:
        wanted.pop(info.about.name, None)
    return wanted


def resume_grid(place: StudyDir, *, held: bool = False) -> list[RunDir]:
    """Queues the combinations that are missing; raises ConfigError, LaunchError, StudyError."""
    study, machine = place.change(stopped=False), inspect_machine()
    wanted = missing(place)
    runs = [_queue(study, place, name, config, machine, held=held) for name, config in wanted.items()]
    start_keeper(place.runs_dir)
    return runs


def check_search(study: Study, runs_dir: Path, machine: Machine) -> Study:
    """Returns a search with its objective and how many runs it may have at a time; raises ConfigError.

    Each key is checked at the ends of its range, or at all of its values, with the others as they are.
    """
    if lack := lacks_optuna():
        raise problem(lack)
    search, base = study.search, study.base
    assert search is not None
    problems = check_draws(base, study.read_axes(), checks_of(machine))
    try:
        study = _with_objective(study, runs_dir)
    except ConfigError as error:
        problems += error.problems
    if search.storage:
        problems += _storage_problems(search.storage)
    if problems:
        raise ConfigError(problems)
    parallel = search.parallel or fits(base, machine)
    return msgspec.structs.replace(
        study,
        search=msgspec.structs.replace(search, parallel=min(parallel, search.trials)),
        environment=apart(),
        directory=working_directory() or "/",
    )


def _storage_problems(url: str) -> list[Problem]:
    """Has Optuna open the database, in a process of its own, as a search does."""
    try:
        done = subprocess.run(module(SEARCH), input=url, capture_output=True, text=True, timeout=STORAGE_S)
        words = done.stdout.strip() or (done.returncode and done.stderr.strip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        words = f"it has not answered for {STORAGE_S:.0f} s"
    if not words:
        return []
    scheme, separator, rest = url.partition("://")
    known_as = f"{scheme}://{rest.rpartition('@')[2]}" if separator else url
    hint = "write a URL such as sqlite:///trials.db or postgresql://USER@HOST/NAME."
    message = f"{shown(known_as)} cannot keep the trials: {words}; {hint}"
    return [Problem("--storage", message)]


def _with_objective(study: Study, runs_dir: Path) -> Study:
    """Says what runs are best by where the user has not: as the key `best`, or as earlier runs of the script."""
    base = study.base
    if BACKENDS[base.backend].builtin:
        best, rises = figure_of(best_by(base))
        name = study.metric or f"test/{best}"
        if name not in BUILTIN_METRICS and not base.model.startswith(PY):
            words = f"{name} is not reported by {base.backend}; use {', '.join(BUILTIN_METRICS)}."
            raise ConfigError([Problem("--metric", words + suggest(name, BUILTIN_METRICS))])
        return msgspec.structs.replace(study, metric=name, rises=study.rises if study.metric else rises)
    if study.metric:
        return study
    earlier = [
        info
        for info in map(summarise, find_run_dirs(runs_dir)[: -GUESSED_FROM - 1 : -1])
        if info.config and _same_script(info.config, base)
    ]
    if found := guess(earlier):
        return msgspec.structs.replace(study, metric=found.name, rises=found.rises)
    words = "name the metric that the script reports: nothing is known of it before its first run."
    raise ConfigError([Problem("--metric", words)])


def _same_script(one: RunConfig, other: RunConfig) -> bool:
    return bool(one.script) and os.path.basename(one.script) == os.path.basename(other.script)


def fits(config: RunConfig, machine: Machine) -> int:
    """Returns how many runs of a configuration the machine's devices have room for at once."""
    if config.launcher != "local" or (config.platform != "cpu" and machine.gpus):
        each = len(config.device_ids) or config.devices or len(machine.gpus)
        return max(1, len(machine.gpus) // max(1, each))
    return cpu_slots(read_settings()[0])


def plan_search(study: Study, runs_dir: Path, machine: Machine) -> Study:
    """As `check_search`, with what a launch checks beside the keys; raises LaunchError, too."""
    study = check_search(study, runs_dir, machine)
    prepare(study.base, unused(machine))
    return study


def begin_search(study: Study, runs_dir: Path, machine: Machine | None = None) -> StudyDir:
    """Starts a search; raises ConfigError, LaunchError, StudyError."""
    machine = machine or inspect_machine()
    study = plan_search(study, runs_dir, machine)
    place = make_study(runs_dir, study)
    start_search(place)
    return place


def resume_search(place: StudyDir, trials: int) -> Study:
    """Gives a search more trials and starts it; raises StudyError."""
    search = place.read().search
    if search is None:
        raise StudyError(f"{place.name} is a grid, which has no trials to add.")
    if lack := lacks_optuna():
        raise StudyError(lack)
    study = place.change(stopped=False, search=msgspec.structs.replace(search, trials=search.trials + trials))
    place.ended.unlink(missing_ok=True)
    start_search(place)
    return study


def start_search(place: StudyDir) -> None:
    """Starts a study's search unless it runs or has ended."""
    with contextlib.suppress(OSError, StudyError):
        if not place.is_searched() or is_held(place.lock):
            return
        study = place.read()
        directory = study.directory if os.path.isdir(study.directory) else "/"
        command = module(SEARCH, str(place.runs_dir.absolute()), place.name)
        start_process(place.log, command, environment=study.environment or None, directory=directory)


def keep_searches(runs_dir: Path) -> bool:
    """Starts the searches that have not ended and have no process, as after a reboot; returns whether one goes on."""
    going_on = [place for place in find_studies(runs_dir) if place.is_searched()]
    for place in going_on:
        start_search(place)
    return bool(going_on)


def stop_study(place: StudyDir) -> int:
    """Ends a study of any kind, or a group: what waits is cancelled, what runs is asked to stop.

    Returns how many runs; raises StudyError.
    """
    kind, infos = place.kind(), place.infos()
    if kind == SWEEP or not (kind or infos):
        place.change(stopped=True)
    live = [info.directory for info in infos if info.is_live]
    # What waits first: none of them starts in the place of one that stops.
    for run in sorted(live, key=lambda run: not run.waits.exists()):
        end_run(place.runs_dir, run, place.name)
    start_search(place)
    return len(live)


def end_run(runs_dir: Path, run: RunDir, study: str) -> None:
    """Cancels a study's run if it waits, and else asks it to stop."""
    try:
        cancel(runs_dir, run, f"study {study} was stopped")
    except QueueError:
        with contextlib.suppress(OSError):
            mailbox.send(run.commands, "stop")
