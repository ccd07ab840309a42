"""`tuiapp sweep`: a run of every combination of values, or a search among them."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tuiapp.library.queue_words import cost_words
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import is_examined
from tuiapp.trainers.config.machine import inspect_machine, unused
from tuiapp.trainers.config.options import ConfigError, Problem, Value, format_value
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig, to_mapping, to_toml_values
from tuiapp.trainers.config.script import subject
from tuiapp.trainers.config.script_syntax import fill_in, read_environment, split_words
from tuiapp.trainers.experiments.pace import cost, recent
from tuiapp.trainers.experiments.space import Axis, combinations, is_own, read_axis, run_name, with_values
from tuiapp.trainers.experiments.study import Search, Study, stem_of
from tuiapp.trainers.experiments.sweep import begin_grid, begin_search, check_grid, fits, plan_search
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.text import plural
from tuiapp.verbs.output import UsageError, print_json, tell
from tuiapp.verbs.sources import add_launcher, read_named, runs_dir
from tuiapp.view.launch_warnings import unfilled

OF_A_SEARCH = ("trials", "sampler", "prune", "storage")


def begin_sweep(options: Namespace) -> int:
    """Queues the runs of a grid, or starts a search; prints the study's name."""
    add_launcher(options)
    _check_usage(options)
    # Values that are swept need not fit what the preset has: each combination is checked as a whole.
    base = read_named(options, purpose="swept")
    axes = _read_axes(base, options.search or options.grid, draws=bool(options.search))
    study = Study(
        name=options.name or stem_of(options.source or (subject(base) if options.like else "defaults")),
        axes={axis.key: axis.text for axis in axes},
        config=to_toml_values(base),
        search=_search(options),
        metric=options.metric or "",
        rises=metric(options.metric or "").rises if options.rises is None else options.rises,
        tags=tuple(options.tags),
        priority=options.priority,
        retry=options.retry,
        parallel=options.parallel,
    )
    values = to_mapping(base)
    # How a script gets values that its arguments do not name.
    if text := unfilled(base, [axis.key for axis in axes if is_own(values, axis.key)]):
        tell(text)
    if options.dry_run:
        return _print_commands(options, study)
    if study.search is not None:
        study_dir = begin_search(study, runs_dir(options))
        study = study_dir.read()
        assert study.search is not None
        if options.json:
            print_json(
                {"study": study_dir.name, "directory": str(study_dir.path), "trials": study.search.trials}, indent=None
            )
            return 0
        print(study_dir.name)
        by = f"{'highest' if study.rises else 'lowest'} {study.metric}"
        tell(f"search of {study.search.trials} trials, {study.search.parallel} at a time, for the {by}")
        _tell_cost(study, study.search.trials, runs_dir(options), at_a_time=study.search.parallel)
    else:
        study_dir, runs = begin_grid(study, runs_dir(options), inspect_machine(), held=options.hold)
        if options.json:
            print_json(
                {"study": study_dir.name, "directory": str(study_dir.path), "runs": [run.run_id for run in runs]},
                indent=None,
            )
            return 0
        print(study_dir.name)
        tell(f"sweep of {plural(len(runs), 'run')}, queued")
        _tell_cost(study, len(runs), runs_dir(options))
    tell(f"to see how it stands: tuiapp study show {study_dir.name}")
    return 0


def _tell_cost(study: Study, runs: int, directory: Path, at_a_time: int = 0) -> None:
    """Says what the runs will take, as far as earlier runs show it."""
    machine = inspect_machine()
    axes = study.read_axes()
    # What is wrong is said elsewhere; of a search all first values together were not checked.
    with suppress(ConfigError, DatasetError, OSError):
        placed = place(with_values(study.base, {axis.key: axis.probes[0] for axis in axes}), unused(machine))
        counts_steps = BACKENDS[placed.backend].builtin and not is_examined(placed.dataset)
        steps = make_plan(placed).total_steps if counts_steps else 0
        at_a_time = at_a_time or fits(placed, machine)
        expected = cost(runs, at_a_time, placed, steps, recent(directory), [axis.key for axis in axes])
        if text := cost_words(expected, at_most=study.search is not None):
            tell(text)


def _print_commands(options: Namespace, study: Study) -> int:
    """Checks a study as if it began, and prints the command of each run; of a search that of any trial."""
    machine, axes = inspect_machine(), study.read_axes()
    if study.search is None:
        check_grid(study, machine)
        combined = combinations(axes)
    else:
        study = plan_search(study, runs_dir(options), machine)
        combined = [{axis.key: f"{{{axis.key}}}" for axis in axes}]
    commands = [_command(options, study.base, values) for values in combined]
    print(json.dumps({"commands": commands}) if options.json else "\n".join(commands))
    if search := study.search:
        drawn = ", ".join(f"{{{axis.key}}} from {axis.text}" for axis in axes)
        by = f"{'highest' if study.rises else 'lowest'} {study.metric}"
        tell(f"{plural(search.trials, 'trial')} for the {by}, each with values drawn: {drawn}")
    _tell_cost(study, study.search.trials if study.search else len(combined), runs_dir(options))
    tell("a dry run: nothing was queued")
    return 0


def _command(options: Namespace, base: RunConfig, values: Mapping[str, Value]) -> str:
    """Returns the `tuiapp run` command of one combination, quoted for a shell."""
    plain = to_mapping(base)
    texts = {key: format_value(value) for key, value in values.items()}
    script_values = {key: text for key, text in texts.items() if is_own(plain, key)}
    settings = [*options.settings, *(f"{key}={text}" for key, text in texts.items() if key not in script_values)]
    filled = read_environment(base.values) | script_values
    if script_values:
        settings.append("values=" + shlex.join(f"{key}={value}" for key, value in filled.items()))
    words = ["tuiapp", "run", *(["--like", options.like] if options.like else [options.source or ""])]
    for option, items in (
        ("--set", settings),
        ("--name", [run_name(values) if options.grid else ""]),
        ("--group", [options.name]),
        ("--tag", options.tags),
        ("--runs-dir", [options.runs_dir]),
    ):
        words += [word for item in items if item for word in (option, str(item))]
    passed = [fill_in(word, filled) for word in split_words(base.arguments)]
    return shlex.join([*filter(None, words), *(["--", *passed] if passed or options.arguments is not None else [])])


def _check_usage(options: Namespace) -> None:
    if bool(options.grid) == bool(options.search):
        text = "name what to go through: --grid KEY=A,B for every combination, or --search KEY=A..B for a search"
        raise UsageError(f"{text}{', not both' if options.grid else ''}.")
    if options.search and not options.trials:
        raise UsageError("--search needs --trials N: how many runs it may make.")
    if options.search and options.hold:
        raise UsageError("--hold is for --grid: a search makes a trial when the last one has shown something.")
    if options.grid and (names := [name for name in OF_A_SEARCH if getattr(options, name)]):
        raise UsageError(f"--{names[0]} is for --search: omit it, or --grid.")
    if options.rises is not None and not options.metric:
        raise UsageError("--maximize and --minimize need --metric NAME.")


def _read_axes(base: RunConfig, texts: Sequence[str], *, draws: bool) -> list[Axis]:
    values, axes, problems = to_mapping(base), dict[str, Axis](), list[Problem]()
    option = "--search" if draws else "--grid"
    for text in texts:
        key, equals, what = text.partition("=")
        try:
            if not equals:
                raise ConfigError([Problem(key, f"no values given; write {option} {key}=A,B or {key}=A..B.")])
            axis = read_axis(values, key, what, draws=draws)
            if axis.key in axes:
                raise ConfigError([Problem(axis.key, f"is given twice; write {option} {key}=A,B.")])
        except ConfigError as error:
            problems += error.problems
        else:
            axes[axis.key] = axis
    if problems:
        raise ConfigError(problems)
    return list(axes.values())


def _search(options: Namespace) -> Search | None:
    if not options.search:
        return None
    return Search(
        trials=options.trials,
        parallel=options.parallel,
        sampler=options.sampler or "tpe",
        pruner=options.prune or "median",
        storage=options.storage or "",
    )
