"""Export: the figures of runs for other programs, each run's in a file or directory of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tuiapp.actions.action import Outcome
from tuiapp.library.export import ExportError, check_target, export_to
from tuiapp.library.exporters import EXPORTERS, What
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.history import find_gaps
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import plural


def file_name(run_id: str, what: What, form: str) -> str:
    """Returns what a run's export is called, unless somebody says otherwise."""
    exporter = EXPORTERS[form]
    return f"{run_id}-{form if exporter.is_directory else what}{exporter.suffix}"


def targets(run_ids: Sequence[str], path: Path, what: What, form: str) -> list[Path]:
    """Returns where runs are exported to: one to `path`, several into that directory."""
    return [path] if len(run_ids) == 1 else [path / file_name(run_id, what, form) for run_id in run_ids]


def do(runs: Sequence[RunDir], path: Path, what: What, form: str, *, force: bool = False) -> Outcome:
    """Writes the figures of runs, as `targets`; nothing if one of them cannot be. Raises ExportError."""
    outcome, exporter, counts = Outcome(), EXPORTERS[form], list[int]()
    paths = targets([run.run_id for run in runs], path, what, form)
    for run, target in zip(runs, paths, strict=True):
        check(run)
        check_target(target, form, what, force=force)
    for run, target in zip(runs, paths, strict=True):
        counts.append(export_to(target, run, what, form, force=force))
        outcome.done.append(run)
    where = path if len(runs) == 1 else f"{len(runs)} runs in {path}"
    outcome.say(f"{plural(sum(counts), 'row')} of {what}: {where}")
    if exporter.reader:
        outcome.say(f"to show it: {exporter.reader.format(shlex.quote(str(path)))}")
    for run, count in zip(runs, counts, strict=True):
        say_missing(outcome, run, what, count)
    return outcome


def check(run: RunDir) -> None:
    """Raises ExportError if a run cannot be read."""
    if not (info := summarise(run)).is_readable:
        raise ExportError(f"{run.run_id} cannot be exported: {info.problem}")


def say_missing(outcome: Outcome, run: RunDir, what: What, count: int) -> None:
    """Adds to an outcome what a run's export of so many rows lacks."""
    if missing := find_gaps(run.journal).words:
        outcome.say(f"{run.run_id}: {missing}.", "warning")
    if not count:
        info = summarise(run)
        outcome.say(f"{run.run_id} has no {what}: {info.problem or f'the run is {info.status}'}.", "warning")
