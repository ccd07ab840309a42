"""`tuiapp rm`: deletes runs that are over."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from tuiapp.actions import delete
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import format_bytes, join_words
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.output import print_outcome
from tuiapp.verbs.sources import runs_of


def remove_runs(options: Namespace) -> int:
    """Deletes all of the runs or, where one has not ended, none; asks on a terminal."""
    runs = runs_of(options)
    delete.check(runs)
    if not options.yes and not agreed(runs, delete.question([summarise(run) for run in runs]).title):
        return 0
    return print_outcome(delete.do(runs))


def agreed(runs: Sequence[RunDir], question: str) -> bool:
    """Asks on the terminal, below a line for each run; tells a refusal. Raises UsageError without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Cannot ask for confirmation without a terminal. To delete without it: --yes.")
    for run in runs:
        print(f"  {join_words([delete.described(summarise(run)), _size(run)])}", file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    yes = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not yes:
        print("nothing was deleted", file=sys.stderr)
    return yes


def _size(run: RunDir) -> str:
    total = 0
    for file in run.path.rglob("*"):
        try:
            total += file.lstat().st_size
        except OSError:
            continue
    return format_bytes(total)
