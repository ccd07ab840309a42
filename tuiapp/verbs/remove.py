"""`tuiapp rm`: deletes runs that are over."""

from __future__ import annotations

import sys
from argparse import Namespace

from trainers.contract.rundir import RunDir
from trainers.state.summary import summarise
from trainers.state.text import format_bytes, format_count, join_words, plural
from tuiapp.library.find import titled
from tuiapp.library.removal import RemovalError, remove_run, sweep_removed
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.output import tell
from tuiapp.verbs.sources import runs_dir, runs_of
from tuiapp.view.run_list import title


def remove_runs(options: Namespace) -> int:
    """Deletes all of the runs or, where one cannot be deleted, none; asks on a terminal."""
    runs = runs_of(options)
    if live := [run for run in runs if run.is_live()]:
        raise RemovalError(
            "\n".join(f"{run.run_id} is running. Stop it first: tuiapp stop {run.run_id}" for run in live)
        )
    if not options.yes and not _agreed(runs):
        print("nothing was deleted", file=sys.stderr)
        return 0
    failed = False
    for run in runs:
        what = titled(run)
        try:
            remove_run(run)
        except RemovalError as error:
            failed = True
            tell(str(error))
        else:
            print(f"deleted {what}", file=sys.stderr)
    for parent in {runs_dir(options), *(run.path.parent for run in runs)}:
        sweep_removed(parent)
    return 1 if failed else 0


def _agreed(runs: list[RunDir]) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Cannot ask for confirmation without a terminal. To delete without it: --yes.")
    for run in runs:
        info = summarise(run)
        steps = f"{format_count(info.summary.steps)} steps"
        print(f"  {join_words([title(info), info.status, steps, _size(run)])}", file=sys.stderr)
    print(f"Delete {plural(len(runs), 'run')} with all checkpoints? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _size(run: RunDir) -> str:
    total = 0
    for file in run.path.rglob("*"):
        try:
            total += file.lstat().st_size
        except OSError:
            continue
    return format_bytes(total)
