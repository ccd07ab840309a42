"""Annotate: what runs are called, their group, tags and note, and what mars them that the user knows of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuiapp.actions.action import Outcome
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, Change, change_about, read_about
from tuiapp.trainers.state.summary import summarise


def in_common(runs: Sequence[RunDir]) -> tuple[About, list[str]]:
    """Returns what runs are called, of several their group and tags alone; and what is wrong with their files."""
    abouts = [read_about(run) for run in runs]
    (about, *further), damaged = [about for about, _ in abouts], [problem for _, problem in abouts if problem]
    if further:
        tags = tuple(tag for tag in about.tags if all(tag in other.tags for other in further))
        about = About(tags=tags, group=about.group if all(other.group == about.group for other in further) else "")
    return about, damaged


def do(runs: Sequence[RunDir], change: Change, *, accepts: bool = False) -> Outcome:
    """Changes what runs are called, and accepts what mars them. Raises AboutError."""
    outcome = Outcome()
    for run in runs:
        accepted = tuple(blemish.kind for blemish in summarise(run).blemishes) if accepts else ()
        change_about(run, replace(change, accepted=accepted))
        outcome.done.append(run)
    return outcome
