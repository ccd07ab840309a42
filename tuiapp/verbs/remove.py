"""`tuiapp rm`: deletes runs that are over."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence

from tuiapp.library.find import titled
from tuiapp.library.removal import RemovalError, remove_run, sweep_removed
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import format_bytes, format_count, join_words, plural
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.output import tell
from tuiapp.verbs.sources import runs_of
from tuiapp.view.run_list import title


def remove_runs(options: Namespace) -> int:
    """Deletes all of the runs or, where one cannot be deleted, none; asks on a terminal."""
    runs = runs_of(options)
    if live := [run for run in runs if run.is_live()]:
        raise RemovalError(
            "\n".join(f"{run.run_id} is running. Stop it first: tuiapp stop {run.run_id}" for run in live)
        )
    if not options.yes and not agreed(described(runs), f"Delete {plural(len(runs), 'run')} with all checkpoints?"):
        return 0
    return 0 if len(delete(runs)) == len(runs) else 1


def delete(runs: Sequence[RunDir]) -> list[RunDir]:
    """Deletes runs, and tells which could not be; returns those that are."""
    deleted = []
    for run in runs:
        what = titled(run)
        try:
            remove_run(run)
        except RemovalError as error:
            tell(str(error))
        else:
            deleted.append(run)
            print(f"deleted {what}", file=sys.stderr)
    for parent in {run.path.parent for run in runs}:
        sweep_removed(parent)
    return deleted


def agreed(lines: Iterable[str], question: str) -> bool:
    """Asks on the terminal, below some lines; tells a refusal. Raises UsageError without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Cannot ask for confirmation without a terminal. To delete without it: --yes.")
    for line in lines:
        print(f"  {line}", file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    yes = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not yes:
        print("nothing was deleted", file=sys.stderr)
    return yes


def described(runs: Iterable[RunDir]) -> Iterator[str]:
    """A line for each run: what it is called, how it ended, how large it is."""
    for run in runs:
        info = summarise(run)
        steps = f"{format_count(info.summary.steps)} steps"
        yield join_words([title(info), info.status, steps, _size(run)])


def _size(run: RunDir) -> str:
    total = 0
    for file in run.path.rglob("*"):
        try:
            total += file.lstat().st_size
        except OSError:
            continue
    return format_bytes(total)
