"""Begins studies, goes on with them, and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.options import ConfigError, Problem, Value, shown, suggest
from tuiapp.trainers.config.run_config import RunConfig, best_by, figure_of
from tuiapp.trainers.config.settings import Settings, read_settings
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.metrics import LOSS, TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.contract.sidecars import About, remove
from tuiapp.trainers.experiments.daemon import Daemon
from tuiapp.trainers.experiments.holders import cpu_slots
from tuiapp.trainers.experiments.queue import QueueError, cancel, check_all, enqueue_all
from tuiapp.trainers.experiments.space import all_configs, check_draws, checks_of, combinations, run_name, short_value
from tuiapp.trainers.experiments.study import Study, StudyDir, StudyError, find_studies, lacks_optuna, make_study
from tuiapp.trainers.launch.directory import working_directory
from tuiapp.trainers.launch.processes import apart
from tuiapp.trainers.state.objective import GUESSED_FROM, guess
from tuiapp.trainers.state.summary import summarise

SEARCH, IMPORTANCE = "tuiapp.trainers.experiments.search", "tuiapp.trainers.experiments.importance"
STORAGE_S = 60.0
"""Seconds within which a database opens: it makes its tables at the first time."""
BUILTIN_METRICS = (TEST_ACCURACY, TEST_LOSS, LOSS)
"""What the built-in trainers can be best by."""


class Planned(NamedTuple):
    """A run of a scaling study or a shoot-out that is to be queued."""

    config: RunConfig
    note: str


def check_grid(study: Study, machine: Machine) -> None:
    """Checks each combination as at a launch; raises ConfigError, LaunchError."""
    check_all(all_configs(study.base, combinations(study.read_axes()), checks_of(machine)), machine)


def begin_grid(
    study: Study, runs_dir: Path, machine: Machine | None = None, *, held: bool = False
) -> tuple[StudyDir, list[RunDir]]:
    """Queues a run of each combination, in their order, once all are checked.

    Raises ConfigError, LaunchError, StudyError, and then has queued nothing.
    """
    machine = machine or inspect_machine()
    combined = combinations(study.read_axes())
    configs = all_configs(study.base, combined, checks_of(machine))
    study_dir = make_study(runs_dir, study)
    with _removed_on_failure(study_dir):
        return study_dir, _queue(study, study_dir, zip(combined, configs, strict=True), machine, held=held)


def begin_measured(
    study: Study, runs_dir: Path, plans: Sequence[Planned], repeat: int, machine: Machine
) -> tuple[StudyDir, list[RunDir]]:
    """Queues the runs of a scaling study or a shoot-out, each to run alone: one of each plan, `repeat` times.

    So whatever else the machine does meets them all alike. Raises as `begin_grid`.
    """
    study_dir = make_study(runs_dir, study)
    with _removed_on_failure(study_dir):
        runs = [(config, About(group=study_dir.name, note=note)) for config, note in plans] * repeat
        return study_dir, enqueue_all(runs, runs_dir, machine=machine, exclusive=True, parallel=1)


@contextlib.contextmanager
def _removed_on_failure(study_dir: StudyDir) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # Ctrl-C, too.
        if not study_dir.runs():
            shutil.rmtree(study_dir.path, ignore_errors=True)
        raise


def _queue(
    study: Study,
    study_dir: StudyDir,
    pairs: Iterable[tuple[dict[str, Value], RunConfig]],
    machine: Machine,
    *,
    held: bool,
) -> list[RunDir]:
    about = About(group=study_dir.name, tags=study.tags)
    runs = [(config, replace(about, name=run_name(values), values=values)) for values, config in pairs]
    settings = {"priority": study.priority, "retry": study.retry, "parallel": study.parallel, "held": held}
    return enqueue_all(runs, study_dir.runs_dir, machine=machine, **settings)


def resume_grid(study_dir: StudyDir, *, held: bool = False) -> list[RunDir]:
    """Queues the combinations of a grid that no run has completed or is still to.

    Raises ConfigError, LaunchError, StudyError.
    """
    with study_dir.alone():
        study = replace(study_dir.read(), stopped=False)
        study_dir.write(study)
        combined = combinations(study.read_axes())
        configs = all_configs(study.base, combined)
        there = [info.about for info in study_dir.infos() if info.is_live or info.status == "completed"]
        # Older runs have the values in their names alone.
        made = {repr(about.values) if about.values else about.name for about in there}
        missing = [
            (values, config)
            for values, config in zip(combined, configs, strict=True)
            if not made & {repr(values), run_name(values), run_name(values, short_value)}
        ]
        return _queue(study, study_dir, missing, inspect_machine(), held=held) if missing else []


def plan_search(study: Study, runs_dir: Path, machine: Machine) -> Study:
    """Returns a search with its objective and how many runs it may have at a time; raises ConfigError, LaunchError.

    Each key is checked at the ends of its range, or at all of its values, with the others as they are.
    """
    if lack := lacks_optuna():
        raise ConfigError([Problem("", lack)])
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
    check_all([base], machine)
    search = replace(search, parallel=min(search.parallel or fits(base, machine), search.trials))
    return replace(study, search=search, environment=apart(), directory=working_directory() or "/")


def _storage_problems(url: str) -> list[Problem]:
    """Has Optuna open the database, in a process of its own, as a search does."""
    try:
        done = subprocess.run(module(SEARCH), input=url, capture_output=True, text=True, timeout=STORAGE_S)
        problem = done.stdout.strip() or (done.returncode and done.stderr.strip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        problem = f"it has not answered for {STORAGE_S:.0f} s"
    if not problem:
        return []
    scheme, separator, location = url.partition("://")
    known_as = f"{scheme}://{location.rpartition('@')[2]}" if separator else url
    hint = "write a URL such as sqlite:///trials.db or postgresql://USER@HOST/NAME."
    message = f"{shown(known_as)} cannot keep the trials: {problem}; {hint}"
    return [Problem("--storage", message)]


def _with_objective(study: Study, runs_dir: Path) -> Study:
    """Says what runs are best by where the user has not: as the key `best`, or as earlier runs of the script."""
    base = study.base
    if BACKENDS[base.backend].builtin:
        best, rises = figure_of(best_by(base))
        name = study.metric or f"test/{best}"
        if name not in BUILTIN_METRICS and not base.model.startswith(PY):
            text = f"{name} is not reported by {base.backend}; use {', '.join(BUILTIN_METRICS)}."
            raise ConfigError([Problem("--metric", text + suggest(name, BUILTIN_METRICS))])
        return replace(study, metric=name, rises=study.rises if study.metric else rises)
    if study.metric:
        return study
    earlier = [
        info
        for info in map(summarise, find_run_dirs(runs_dir)[: -GUESSED_FROM - 1 : -1])
        if base.script and info.config and os.path.basename(info.config.script) == os.path.basename(base.script)
    ]
    if objective := guess(earlier):
        return replace(study, metric=objective.name, rises=objective.rises)
    text = "name the metric that the script reports: nothing is known of it before its first run."
    raise ConfigError([Problem("--metric", text)])


def fits(config: RunConfig, machine: Machine, settings: Settings | None = None) -> int:
    """Returns how many runs of a configuration the machine's devices have room for at once."""
    if config.launcher != "local" or (config.platform != "cpu" and machine.gpus):
        per_run = len(config.device_ids) or config.devices or len(machine.gpus)
        return max(1, len(machine.gpus) // max(1, per_run))
    return cpu_slots(settings or read_settings()[0])


def begin_search(study: Study, runs_dir: Path, machine: Machine | None = None) -> StudyDir:
    """Starts a search; raises ConfigError, LaunchError, StudyError."""
    study_dir = make_study(runs_dir, plan_search(study, runs_dir, machine or inspect_machine()))
    with _removed_on_failure(study_dir):
        start_search(study_dir)
    return study_dir


def resume_search(study_dir: StudyDir, trials: int) -> Study:
    """Gives a search more trials and starts it; raises StudyError."""
    with study_dir.alone():
        study = study_dir.read()
        if study.search is None:
            raise StudyError(f"{study_dir.name} is a {study.kind}, which has no trials to add.")
        if lack := lacks_optuna():
            raise StudyError(lack)
        search = replace(study.search, trials=study.search.trials + trials)
        study = replace(study, stopped=False, search=search, environment=apart(), directory=working_directory() or "/")
        study_dir.write(study)
        study_dir.ended.unlink(missing_ok=True)
    start_search(study_dir)
    return study


def start_search(study_dir: StudyDir) -> None:
    """Starts a study's search unless it runs or has ended; raises StudyError."""
    if not study_dir.is_searched():
        return
    study, search = study_dir.read(), _search_of(study_dir)
    directory = study.directory if os.path.isdir(study.directory) else "/"
    try:
        search.start(study.environment or apart(), directory)
    except (OSError, ValueError) as error:
        raise StudyError(f"The search {study_dir.name} cannot be started: {error}") from error


def _search_of(study_dir: StudyDir) -> Daemon:
    return Daemon(study_dir.lock, study_dir.log, SEARCH, (str(study_dir.runs_dir.absolute()), study_dir.name))


def importances(
    trials: Sequence[tuple[Mapping[str, object], float]], rises: bool, log_keys: Collection[str]
) -> dict[str, float]:
    """Returns each key's importance, computed in a process that imports Optuna; none if that fails."""
    if lacks_optuna() or len(trials) < 2:
        return {}
    with contextlib.suppress(OSError, ValueError, TypeError, subprocess.SubprocessError):
        text = json.dumps({"trials": trials, "rises": rises, "log_keys": sorted(log_keys)})
        done = subprocess.run(module(IMPORTANCE), input=text, capture_output=True, text=True, timeout=STORAGE_S)
        return msgspec.json.decode(done.stdout, type=dict[str, float])
    return {}


def keep_searches(runs_dir: Path) -> bool:
    """Starts the searches that have not ended and have no process, as after a reboot; returns whether one goes on."""
    going_on = [study for study in find_studies(runs_dir) if study.is_searched() and not lacks_optuna()]
    for study_dir in going_on:
        with contextlib.suppress(StudyError):
            if not _search_of(study_dir).was_just_started():
                start_search(study_dir)
    return bool(going_on)


def stop_study(study_dir: StudyDir) -> int:
    """Ends a study of any kind, or a group: what waits is cancelled, what runs is asked to stop.

    Returns how many runs; raises StudyError.
    """
    infos = study_dir.infos()
    if study_dir.exists() or not infos:
        study_dir.change(stopped=True)
    live = [info.directory for info in infos if info.is_live]
    for info in infos:
        if not info.is_live:
            # It would be tried again.
            with contextlib.suppress(OSError):
                remove(info.directory.kept)
    # What waits first: none of them starts in the place of one that stops.
    for run in sorted(live, key=lambda run: not run.waits.exists()):
        end_run(study_dir.runs_dir, run, f"study {study_dir.name} was stopped")
    if study_dir.exists():
        # It ends by itself.
        start_search(study_dir)
    return len(live)


def end_run(runs_dir: Path, run: RunDir, why: str) -> None:
    """Cancels a run if it waits, and else asks it to stop."""
    with contextlib.suppress(QueueError):
        if os.path.lexists(run.waits):
            return cancel(runs_dir, run, why)
    with contextlib.suppress(OSError):
        sidecars.send_command(run.commands, "stop")
