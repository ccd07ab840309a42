"""`tuiapp runs` and `show`: the runs and their facts."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from typing import cast

from tuiapp.actions import resume
from tuiapp.library.find import UnknownRunError, find_run
from tuiapp.library.liveness import keep_watched
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.config.options import Value, format_value
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.config.run_config import OPTIONS, actual_rate, learning_rate_words, to_toml_values
from tuiapp.trainers.config.secrets import mask_values
from tuiapp.trainers.contract.events import Event, InitialWeights
from tuiapp.trainers.contract.manifest import CheckpointDir, best_checkpoint, list_checkpoints
from tuiapp.trainers.contract.metrics import LOSS, RATE, TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.experiments.queue import start_keeper
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.known_metrics import KNOWN, format_accuracy, is_further, metric, ordered
from tuiapp.trainers.state.messages import (
    describe_alone,
    describe_average,
    describe_blemishes,
    describe_initial,
    describe_replicas,
    failure_lines,
)
from tuiapp.trainers.state.objective import Objectives
from tuiapp.trainers.state.resume_point import ResumePoint, resume_point
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import (
    MISSING,
    format_bytes,
    format_clock,
    format_count,
    format_fact,
    in_json,
    join_words,
    plural,
    sanitize,
    sanitize_lines,
)
from tuiapp.verbs.facts import (
    checkpoint_facts,
    group_facts,
    list_facts,
    media_facts,
    media_words,
    read_through,
    reported_facts,
)
from tuiapp.verbs.output import UsageError, print_json, tell, width_of_stdout
from tuiapp.verbs.sources import run_of, runs_dir
from tuiapp.view.comparison import against
from tuiapp.view.devices.large import efficiency_words
from tuiapp.view.epochs import epoch_columns, epoch_facts
from tuiapp.view.groups import MOST_TEXT, ListRow, Row, RunGroup, arrange, group_cell, listed, runs_of
from tuiapp.view.predictions import predictions_facts
from tuiapp.view.run_list import (
    BEST,
    BY_NAME,
    DISK,
    NEWEST,
    WHAT_RUNS,
    best_column,
    both_kinds,
    choose,
    column_of,
    columns_of,
    compared_names,
    equal_columns,
    journal,
    listed_value,
    meant,
    objectives_words,
    order,
    started_at,
    state,
    state_counts,
    state_name,
    tags,
    unknown_names,
)
from tuiapp.view.run_values import (
    CONFIG,
    GROUP,
    default_keys,
    is_constant,
    names_of,
    unknown_name,
)
from tuiapp.view.table import Column, fitting, nonempty, plain_table

MAX_ALERTS = 5
MAX_EPOCHS = 20


def list_all(options: Namespace) -> int:
    """Prints one line per run, or one JSON array."""
    directory = runs_dir(options)
    index = RunIndex(directory)
    everything = index.read_all()
    words, sort_name = " ".join(options.words), options.sort or NEWEST
    wanted = options.columns.split(",") if options.columns else []
    if DISK in {sort_name, *wanted, *compared_names(words)}:
        deque(index.measure(), maxlen=0)
        everything = index.infos
    start_keeper(directory)
    if index.problem:
        raise UnknownRunError(index.problem)
    if sort_name != BEST and not meant(sort_name, everything):
        raise UsageError(f"runs cannot be sorted by {sort_name!r}: {unknown_name(sort_name, _names(everything))}")
    columns = [_column_named(name, everything) for name in wanted]
    if everything and (unknown := unknown_names(everything, words)):
        raise UsageError(f"runs cannot be compared so: {' '.join(unknown)}")
    for line in both_kinds([*compared_names(words), sort_name, *wanted], everything):
        tell(line)
    matching = choose(everything, words)
    objectives = Objectives({})
    if sort_name == BEST or options.fold:
        # With NumPy.
        from tuiapp.library.chart_view import chosen_objectives

        objectives = chosen_objectives(matching)
    sort = column_of(meant(sort_name, everything) or NEWEST)
    if sort_name == BEST and (best := best_column(objectives)):
        sort = best
        words = objectives_words(objectives, matching)
        if len(objectives.distinct) > 1 or words != str(objectives.distinct[0]):
            tell(f"best by {words}")
    arranged: Callable[..., Sequence[Row]] = arrange if options.fold else order
    rows = arranged(matching, sort, reverse=options.reverse, live_first=not options.sort)[: options.limit]
    if options.json:
        full = {name: meant(name, everything) for name in wanted}
        print_json([_facts(row, full, objectives) for row in rows])
        return 0
    if not everything:
        print(
            f"There are no runs in {sanitize(str(directory))} yet. To start one: tuiapp run quickstart", file=sys.stderr
        )
        return 0
    if not rows:
        print(
            f"None of {plural(len(everything), 'run')} matches all these words. To list all: tuiapp runs",
            file=sys.stderr,
        )
        return 0
    # On a terminal the most important columns that fit.
    width = width_of_stdout()
    infos = [info for row in rows for info in runs_of(row)]
    columns = columns or _columns(infos, sort)
    if options.baseline is not None:
        baseline = summarise(find_run(options.baseline, directory))
        columns = [against(column, baseline) for column in columns]
    shown = listed(rows, lambda group: False)
    folded = [_folded(column) for column in columns]
    print(*plain_table(folded, shown, width), sep="\n")
    if hidden := len(folded) - len(fitting(folded, width, shown)):
        tell(f"{plural(hidden, 'column')} more: a wider terminal, or --columns, shows them")
    for info in infos:
        if info.status in ("newer", "unreadable"):
            tell(f"{info.directory.run_id}: {info.problem}")
    return 0


def _facts(row: Row, names: Mapping[str, str], objectives: Objectives) -> dict[str, object]:
    """Returns a run's or a group's entry, a run's with its values of `names`: as they were given → in full."""
    if not isinstance(row, RunInfo):
        return group_facts(row, objectives.of(row.infos[0]))
    values = {name: listed_value(row, full) for name, full in names.items()}
    return list_facts(row) | ({"values": values} if names else {})


def _names(infos: Iterable[RunInfo]) -> list[str]:
    return [*BY_NAME, *OPTIONS, *names_of(infos)]


def show_run(options: Namespace) -> int:
    """Prints all facts of one run."""
    run = run_of(options)
    info = summarise(run)
    keep_watched(run)
    checkpoints, damaged = list_checkpoints(run.checkpoints)
    best = best_checkpoint(checkpoints, info.best_by)
    state = read_through(info)
    efficiency = state.meter.efficiency(whole=True)
    info = replace(info, facts=state.facts)
    failure = state.first_failure
    alerts = [alert for alert in state.alerts if alert.severity == "error"][-MAX_ALERTS:]
    gaps = state.gaps
    # Of the first rank; a built-in trainer's are shown elsewhere, but for those of a model of the user's own.
    reported = {
        name: state.curves.first(name).last
        for name in ordered(state.curves.names)
        if state.is_script or is_further(name)
    }
    shown: Callable[[Mapping[str, object]], dict[str, object]] = dict if options.secrets else mask_values
    config = shown(to_toml_values(info.config)) if info.config else {}
    if options.json:
        more = {
            "config": config or None,
            "actual_learning_rate": actual_rate(info.config) if info.config and "learning_rate" in config else None,
            "traceback": failure.traceback if failure else None,
            "alerts": [alert.text for alert in alerts],
            "efficiency": asdict(efficiency),
            "checkpoints": checkpoint_facts(checkpoints, best) or reported_facts(state),
            "missing_steps": gaps.spans,
            "predictions": predictions_facts(state.predictions),
            "media": media_facts(state.media),
            "by_epoch": [epoch_facts(row) for row in state.curves.last_epochs()],
            "initial_weights": _initial(state),
            "replicas": _replicas(state),
            "script_config": shown(state.facts.config),
            "script_summary": shown(state.facts.summary),
            "script_metrics": {name: in_json(value) for name, value in reported.items()},
            "resume": (command := resume.command(run)) or None,
            "resume_step": point.step if command and (point := resume_point(run)) else None,
        }
        print_json({**list_facts(info), **more})
        return 0
    summary = info.summary
    figures = {LOSS: summary.loss, TEST_ACCURACY: summary.test_accuracy, RATE: summary.examples_per_second}
    test_loss = None if summary.test_loss is None else KNOWN[TEST_LOSS].format(summary.test_loss)
    facts = {
        "run": run.run_id,
        "name": info.name or None,
        "group": info.about.group or None,
        "tags": ", ".join(info.about.tags) or None,
        "directory": str(run.path),
        "state": _state(info),
        "steps": f"{summary.steps:,}",
        **{KNOWN[name].label: KNOWN[name].format(value) for name, value in figures.items()},
        f"{summary.evaluated_on} loss": test_loss,
        "took": BY_NAME["took"].cell(info),
        "started": _moment(started_at(info)),
        "journal": journal(info) + " (large: tuiapp compact, once it has ended)" * info.has_large_journal,
        "host": info.host or None,
        "part of": f"{info.where}. {describe_alone(info.begun)}".rstrip(". ") if info.where else None,
        "rate": learning_rate_words(info.config) or None if info.config else None,
        "mesh": _mesh_words(info),
        "weights": describe_average(state.config) or None,
        "efficiency": join_words(efficiency_words(efficiency)) or None,
        "began with": describe_initial(state.initial).removeprefix("initial weights: ") if state.initial else None,
        "replicas": describe_replicas(state.replicas) if state.replicas else None,
        "reason": info.reason,
        "blemishes": describe_blemishes(info.blemishes) or None,
        "gap": gaps.words or None,
        "problem": info.problem or None if info.config else None,
        "trouble": run.lock_note().trouble or None if run.is_live() else None,
    }
    for name, text in facts.items():
        if text is not None:
            print(f"{sanitize(name):12}{sanitize(text)}")
    if info.about.note:
        print("\nnote")
        for line in sanitize_lines(info.about.note):
            print(f"  {line}".rstrip())
    print()
    if info.config is None:
        print(sanitize(info.problem))
    else:
        for key, value in config.items():
            text = ",".join(value) if isinstance(value, list) else format_value(cast(Value, value))
            print(f"{key:18}{sanitize(text)}")
    script_config, unset = shown(state.facts.config), frozenset() if options.all else default_keys(info)
    _print_facts("the script's configuration", {key: value for key, value in script_config.items() if key not in unset})
    if left_out := len(unset & script_config.keys()):
        print(f"  and {plural(left_out, 'key')} at the library's defaults: --all prints them")
    _print_facts("the script's summary", shown(state.facts.summary))
    _print_facts("last values", {name: metric(name).format(value) for name, value in reported.items()})
    _print_facts("pictures and texts", {name: media_words(kept) for name, kept in state.media.items()})
    _print_epochs(state.curves, everything=options.all)
    hint = resume.hint(run)
    _print_checkpoints(checkpoints, best, damaged, resume_point(run) if hint else None)
    if state.is_script and state.checkpoints:
        print("\ncheckpoints that the script reported")
        for saved in state.checkpoints:
            print(f"  step {saved.step:<10,}  {format_bytes(saved.bytes):9}  {sanitize(saved.name)}")
    if alerts:
        print("\nlast alerts")
    for alert in alerts:
        print(f"  {format_clock(alert.time)}  {sanitize(alert.text)}")
    if hint:
        print(f"\n{sanitize(hint)}")
    if failure is not None:
        print("", *failure_lines(failure), sep="\n")
    return 0


def _mesh_words(info: RunInfo) -> str | None:
    """Returns the mesh of a run that has one; None of a run that was never placed, which has no plan."""
    if info.config and info.config.mesh:
        with suppress(OSError, ValueError):
            return read_plan(info.directory.plan).mesh_words
    return None


def _initial(state: RunState) -> dict[str, object] | None:
    """Returns what the model began with; None: with the weights of its seed, all of which are trained."""
    names = [name for name in InitialWeights.__struct_fields__ if name not in Event.__struct_fields__]
    return {name: getattr(state.initial, name) for name in names} if state.initial else None


def _replicas(state: RunState) -> dict[str, object] | None:
    """Returns what the last comparison of the devices' replicas came to; None: they were not compared."""
    if (compared := state.replicas) is None:
        return None
    differing = [{"rank": replica.rank, "array": replica.array} for replica in compared.differing]
    return {"step": compared.step, "replicas": compared.replicas, "arrays": compared.arrays, "differing": differing}


def _print_facts(title: str, facts: Mapping[str, object]) -> None:
    if facts:
        print(f"\n{title}")
    width = min(60, max([24, *map(len, facts)]))
    for key, value in facts.items():
        print(f"  {sanitize(key):{width}}  {format_fact(value)}")


def _print_epochs(curves: Curves, *, everything: bool) -> None:
    rows = curves.last_epochs()
    shown = rows if everything else rows[-MAX_EPOCHS:]
    if not shown:
        return
    print("", *plain_table(nonempty(epoch_columns(curves.names), shown), shown, width_of_stdout()), sep="\n")
    if left_out := len(rows) - len(shown):
        print(f"  and {plural(left_out, 'earlier epoch')}: --all prints them")


def _print_checkpoints(
    checkpoints: list[CheckpointDir], best: CheckpointDir | None, damaged: list[str], point: ResumePoint | None
) -> None:
    if checkpoints or damaged:
        print("\ncheckpoints")
    for checkpoint in checkpoints:
        manifest = checkpoint.manifest
        cells = [
            f"{checkpoint.path.name:15}",
            f"epoch {format_count(round(manifest.epoch, 2)):6}",
            f"{format_bytes(checkpoint.bytes):9}",
            f"loss {KNOWN[TEST_LOSS].format(manifest.loss)}" if manifest.loss is not None else "",
            f"accuracy {format_accuracy(manifest.accuracy)}" if manifest.accuracy is not None else "",
            "best" if checkpoint is best else "",
            "" if manifest.finite else "weights not finite",
            f"resume point{'' if point.covered else ', not in the journal'}"
            if point and checkpoint.path == point.checkpoint.path
            else "",
        ]
        print("  " + "  ".join(cell for cell in cells if cell).rstrip())
    for problem in damaged:
        print(f"  {sanitize(problem)}")


def _state(info: RunInfo) -> str:
    # What other programs read has the word alone.
    return state(info) if sys.stdout.isatty() else state_name(info)


def _job(info: RunInfo) -> str:
    """Returns the Slurm job, and the node of several, as "17_3 n0/2"."""
    begun = info.begun
    node = f"n{begun.part[0]}/{begun.part[1]}" if begun and begun.part else ""
    return sanitize(" ".join(filter(None, (begun.job if begun else "", node)))) or MISSING


def _moment(seconds: float | None) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S") if seconds else MISSING
    except (OverflowError, ValueError, OSError):
        return MISSING


def _column(title: str, rank: int, cell: Callable[[RunInfo], str], most: int = 100) -> Column[RunInfo]:
    return Column(title, len(title), cell, rank, left=True, most=most, key=cell)


def _as_on_screen(title: str, rank: int, name: str, most: int = 100) -> Column[RunInfo]:
    return replace(BY_NAME[name], title=title, width=len(title), rank=rank, left=True, most=most)


LISTED = (
    _as_on_screen("RUN", 0, "run"),
    _column("NAME", 2, lambda info: sanitize(info.name) or MISSING, 40),
    _column("GROUP", 4, lambda info: sanitize(info.about.group) or MISSING, 20),
    _column("TAGS", 9, lambda info: tags(info) or MISSING, 30),
    _column("STATE", 1, _state),
    _as_on_screen("BACKEND", 4, "backend"),
    _as_on_screen("MODEL", 5, "model", 24),
    _as_on_screen("DATASET", 8, "dataset", 24),
    _as_on_screen("DEVICES", 13, "devices"),
    _as_on_screen("STEPS", 3, "steps"),
    _as_on_screen("LOSS", 7, "loss"),
    _as_on_screen("BEST", 2, "accuracy"),
    _as_on_screen("BEST LOSS", 16, "best_loss"),
    _as_on_screen("EXAMPLES/S", 10, "speed"),
    _as_on_screen("TOOK", 3, "took"),
    _as_on_screen("ETA", 3, "eta"),
    _column("STARTED", 6, lambda info: _moment(started_at(info))),
    _column("HOST", 15, lambda info: sanitize(info.host) or MISSING),
    _column("JOB", 14, _job),
)

LISTED_BY_TITLE = {column.title: column for column in LISTED}


def _column_named(name: str, infos: Sequence[RunInfo]) -> Column[RunInfo]:
    """Returns a column by its title, or the name of a column, key or metric; raises UsageError if no run has that."""
    if name.upper() in LISTED_BY_TITLE:
        return LISTED_BY_TITLE[name.upper()]
    if not (full := meant(name, infos)):
        raise UsageError(f"runs have no column {name!r}: {unknown_name(name, _names(infos))}")
    column = column_of(full)
    width = max(column.width, len(name))
    return replace(column, title=name.upper(), width=width, most=max(column.most, width), left=True)


def _folded(column: Column[RunInfo]) -> Column[ListRow]:
    """Returns a column for rows of which some are groups."""
    of_group: Callable[[RunGroup], str] = {
        "RUN": lambda group: f"{group.infos[0].directory.run_id} +{len(group.infos) - 1}",
        "STATE": lambda group: state_counts(group.infos, in_words=True).replace(" · ", ", "),
        "STARTED": lambda group: _moment(max(started_at(info) or 0 for info in group.infos)),
    }.get(column.title, partial(group_cell, column, most=MOST_TEXT if sys.stdout.isatty() else sys.maxsize))
    cell = lambda row: of_group(row.group) if row.group else column.cell(row.infos[0])  # noqa: E731
    return Column(column.title, column.width, cell, column.rank, column.left, column.most)


def _columns(infos: Sequence[RunInfo], by: Column[RunInfo]) -> list[Column[RunInfo]]:
    """Returns the columns without those that say nothing of these runs, and those of keys in which they differ.

    What a pipe gets has always the same columns, and that of the key that it asked for.
    """
    silent = {"NAME", "GROUP", "TAGS", "JOB", "ETA"} - {column.title for column in nonempty(LISTED, infos)}
    # A machine's own list need not say its name.
    silent |= {"HOST"} if len({info.host for info in infos if info.host}) < 2 else set()
    what_runs = [name.upper() for name in WHAT_RUNS]
    values = [] if by.name in BY_NAME else [by]
    if sys.stdout.isatty():
        silent |= {column.title for column in LISTED if column.title in what_runs and is_constant(infos, column)}
        values = [column for column in columns_of(infos, first=values) if column.name not in BY_NAME]
    else:
        silent |= {"ETA"}
    equal = equal_columns([BY_NAME["accuracy"], BY_NAME["best_loss"], *values], infos) | {CONFIG + GROUP}
    keys = [replace(value, title=value.title.upper(), left=True) for value in values if value.name not in equal]
    after = 1 + max(index for index, column in enumerate(LISTED) if column.title in what_runs)
    return [column for column in (*LISTED[:after], *keys, *LISTED[after:]) if column.title not in silent]
