"""`tuiapp study`: what sweeps and searches have come to, and how they go on."""

from __future__ import annotations

import csv
import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from shutil import get_terminal_size

from tuiapp.actions import delete
from tuiapp.actions.action import ActionError
from tuiapp.library.export import put_in_place
from tuiapp.library.presets import of_run, save_preset
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.config.options import format_value
from tuiapp.trainers.experiments.study import StudyDir, StudyError, find_studies
from tuiapp.trainers.experiments.sweep import keep_searches, resume_grid, resume_search, stop_study
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import MISSING, plural, sanitize
from tuiapp.verbs.output import UsageError, aligned, print_json, print_outcome, tell
from tuiapp.verbs.records import agreed
from tuiapp.verbs.sources import runs_dir
from tuiapp.view.run_list import objective_words
from tuiapp.view.study import (
    MEASURED,
    StudyState,
    draw_slice,
    heading,
    importance_of,
    read_study_state,
    study_facts,
    trial_columns,
)
from tuiapp.view.table import plain_table

PLAIN_WIDTH = 80
"""Width of slices where no terminal says how wide it is."""


def list_studies(options: Namespace) -> int:
    """Prints the studies of all kinds, and the groups of runs that are none, by name."""
    directory = runs_dir(options)
    keep_searches(directory)
    groups: dict[str, list[RunInfo]] = {study.name: [] for study in find_studies(directory)}
    for info in RunIndex(directory).read_all():
        if info.about.group:
            groups.setdefault(info.about.group, []).append(info)
    facts, rows = list[dict[str, object]](), list[tuple[str, ...]]()
    for name, infos in sorted(groups.items()):
        try:
            state = read_study_state(StudyDir(directory, name), infos)
            facts.append({**study_facts(state), "trials": len(state.trials)})
            rows.append(_row(state))
        except StudyError as error:
            facts.append({"study": name, "kind": "damaged", "trials": len(infos), "problem": str(error)})
            rows.append((sanitize(name), "damaged", MISSING, str(len(infos)), MISSING, sanitize(str(error))))
    if options.json:
        print_json(facts)
    elif not rows:
        print("There are no studies. To begin one: tuiapp sweep PRESET --grid KEY=A,B", file=sys.stderr)
    else:
        print(*aligned([("STUDY", "KIND", "KEYS", "TRIALS", "BEST", ""), *rows]), sep="\n")
    return 0


def _row(state: StudyState) -> tuple[str, ...]:
    best = f"{state.best.objective:.4g}" if state.best and state.best.objective is not None else "–"
    trials = state.study.search.trials if state.study and state.study.search else len(state.trials)
    by = objective_words(state.objective, [trial.info for trial in state.trials]) if state.objective else ""
    keys = sanitize(", ".join(state.keys)) or MISSING
    return sanitize(state.name), state.kind, keys, f"{state.ended_trials}/{trials}", best, by


def show_study(options: Namespace) -> int:
    """Prints a study's trials, the best first, and the objective against each of its keys."""
    keep_searches(runs_dir(options))
    state = read_study_state(_study_dir(options))
    if options.json:
        print_json({**study_facts(state), "importance": importance_of(state)})
        return 0
    on_terminal = sys.stdout.isatty()
    width = get_terminal_size().columns if on_terminal else PLAIN_WIDTH
    table = plain_table(trial_columns(state), state.trials, width if on_terminal else sys.maxsize)
    print(heading(state), "", *table, sep="\n")
    importance = importance_of(state)
    for key in state.drawn_keys if any(trial.objective is not None for trial in state.trials) else ():
        print("", *draw_slice(state, key, width, importance=importance.get(key)), sep="\n")
    if state.kind in MEASURED:
        tell(f"what it measured: tuiapp {state.kind} --show {state.name}")
    return 0


def export_study(options: Namespace) -> int:
    """Writes a study's trials as a table."""
    state = read_study_state(_study_dir(options))
    if (options.format or "csv") == "json" or options.json:
        text = json.dumps(study_facts(state), indent=2) + "\n"
    else:
        rows, text_file = [], io.StringIO()
        for trial in state.trials:
            info = trial.info
            figures = (trial.state, trial.objective, info.summary.steps, info.summary.seconds)
            rows.append([info.directory.run_id, info.about.name, *figures, *map(_plain, trial.values.values())])
        names = ["run", "name", "state", "objective", "steps", "seconds", *state.keys]
        csv.writer(text_file, lineterminator="\n").writerows([names, *rows])
        text = text_file.getvalue()
    if options.output is None:
        print(text, end="")
        return 0
    with put_in_place(Path(options.output), force=options.force) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return 0


def _plain(value: object) -> str:
    return format_value(value) if isinstance(value, str | int | float | tuple) else ""


def resume_study(options: Namespace) -> int:
    """Gives a search more trials; queues the combinations of a grid that have not been completed."""
    study_dir = _study_dir(options)
    study = study_dir.read()
    if study.kind in MEASURED:
        raise UsageError(f"{study.name} is no sweep: see it by tuiapp {study.kind} --show {study.name}.")
    if study.search is None:
        if options.trials:
            raise UsageError(
                f"{study.name} is a grid: --trials is for searches. Without it, what is missing is queued."
            )
        runs = resume_grid(study_dir, held=options.hold)
        facts: dict[str, object] = {"study": study.name, "runs": [run.run_id for run in runs]}
        text = f"queued {plural(len(runs), 'run')}" if runs else "every combination is completed, or is to be"
    else:
        if options.hold:
            raise UsageError("--hold is for grids: omit it.")
        ended = study_dir.how_it_ended()
        if not options.trials and ended is not None and not ended.failed and not study.stopped:
            raise UsageError(f"{ended.reason}: give {study.name} more of them by --trials N.")
        study = resume_search(study_dir, options.trials)
        assert study.search is not None
        facts = {"study": study.name, "trials": study.search.trials}
        text = f"search of {study.search.trials} trials goes on"
    if options.json:
        print_json(facts, indent=None)
    else:
        tell(text)
    return 0


def save_best(options: Namespace) -> int:
    """Prints a study's best run; saves its configuration as a preset."""
    state = read_study_state(_study_dir(options))
    best = state.best
    if best is None:
        raise UsageError(f"{state.name} has no completed trial with a value of its objective yet.")
    if options.save:
        described = f"best of {state.name}: {best.info.about.name}"
        path = save_preset(options.save, of_run(read_config(best.info.directory)), described, overwrite=options.force)
        tell(f"saved {path}")
    facts = {"run": best.info.directory.run_id, "objective": best.objective, "values": best.values}
    print(json.dumps(facts) if options.json else best.info.directory.run_id)
    return 0


def end_study(options: Namespace) -> int:
    """Ends a study of any kind, or a group: what waits is cancelled, what runs is asked to stop."""
    study_dir = _study_dir(options)
    count = stop_study(study_dir)
    if options.json:
        print_json({"study": study_dir.name, "stopped": count}, indent=None)
    else:
        tell(f"{study_dir.name} makes no more runs; stopped {plural(count, 'run')}")
    return 0


def delete_study(options: Namespace) -> int:
    """Deletes a study, and with --runs its runs; asks on a terminal. Nothing while it makes or has live runs."""
    study_dir = _study_dir(options)
    runs = study_dir.runs()
    if not study_dir.exists():
        if not runs:
            study_dir.read()
        if not options.runs:
            raise UsageError(f"{study_dir.name} is no study, but a group of runs. To delete those: add --runs.")
    live = sum(run.is_live() for run in runs)
    if live or study_dir.is_searched():
        what = f"{plural(live, 'run')} of {study_dir.name} {'wait or train' if live > 1 else 'waits or trains'}"
        what = what if live else f"The search {study_dir.name} goes on"
        raise ActionError(f"{what}. Stop it first: tuiapp study stop {study_dir.name}")
    doomed = runs if options.runs else []
    stay = "" if options.runs or not runs else f"; its {plural(len(runs), 'run')} stay, as a group"
    what = f"{study_dir.name} and its {plural(len(runs), 'run')} with all checkpoints" if doomed else study_dir.name
    if not options.yes and not agreed(doomed, f"Delete {what}{stay}?"):
        return 0
    outcome = delete.do(doomed)
    print_outcome(outcome)
    completed = len(outcome.done) == len(doomed)
    if completed and study_dir.exists():
        delete.remove_study(study_dir)
        delete.sweep_removed(study_dir.path.parent)
    if options.json:
        print_json(
            {"study": study_dir.name, "deleted": completed, "runs": [run.run_id for run in outcome.done]}, indent=None
        )
    elif completed:
        tell(f"deleted {study_dir.name}{stay}")
    return 0 if completed else 1


def _study_dir(options: Namespace) -> StudyDir:
    return StudyDir(runs_dir(options), options.name)
