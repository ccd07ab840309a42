"""Asks what becomes of runs when the program ends, and of processes that ended runs have left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from textual.app import App
from textual.screen import ModalScreen

from tuiapp.actions import stop
from tuiapp.actions.action import Question
from tuiapp.library.find import titled
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.acting import perform
from tuiapp.screens.dialog import Choice
from tuiapp.terminal.slow_disk import soon
from tuiapp.trainers.contract.orphans import Orphan, describe_orphans, end_orphans, find_orphans
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise

Quitting: TypeAlias = Literal["stay", "quit", "stopping"]
"""The decision: not to quit, to quit while the runs continue, or to quit after stopping them."""


async def confirm_quit(app: App[Any], runs: Sequence[RunDir], going_on: Sequence[RunDir]) -> Quitting:
    """Asks whether to stop those of the runs that continue, and sends the command; must run in a worker.

    `going_on` are those that did a moment ago: the question is about them until a slow disk answers.
    """
    live_question = await soon(in_thread(_live_question, runs))
    of_a_moment_ago = _question([run.run_id for run in going_on]) if going_on else None
    question = live_question.result() if live_question.done() else of_a_moment_ago
    if question is None:
        return "quit"
    if isinstance(app.screen, ModalScreen):
        # Asked twice.
        return "stay"
    answer = await app.push_screen_wait(Choice(*question, now=lambda: _live_question(runs) or _ended_question(runs)))
    if answer == "quit":
        return "quit"
    if answer not in ("stop", "stop-now"):
        return "stay"
    outcome = await perform(app, lambda: stop.do([*filter(RunDir.is_live, runs)], now=answer == "stop-now"))
    return "stay" if outcome.of("error") else "stopping"


def farewell(going_on: Mapping[RunDir, str], stopping: Container[RunDir]) -> str:
    """Returns a line for each run, given with its title, that continues after the program ends."""
    return "\n".join(
        f"Run {title} is stopping. See the result: tuiapp attach {run.run_id}"
        if run in stopping
        else f"Run {title} continues. Watch it: tuiapp attach {run.run_id}"
        for run, title in going_on.items()
    )


def _live_question(runs: Sequence[RunDir]) -> Question | None:
    """Returns the question about those that are live; None if none is."""
    live = [run for run in runs if run.is_live()]
    if not live:
        return None
    return _question(list(map(titled, live)), queued=all(summarise(run).status == "queued" for run in live))


def _question(runs: Sequence[str], *, queued: bool = False) -> Question:
    them, they, what = ("them", "They stay", f"{len(runs)} runs are") if runs[1:] else ("it", "It stays", "A run is")
    if queued:
        text = f"{they} in the queue after you quit.\nOr cancel {them}: training has not begun."
        answers = [("stop", f"Cancel {them}", "warning"), ("cancel", "Do not quit", "default")]
    else:
        text = f"Training continues after you quit.\nOr stop {them}, with a checkpoint or at once."
        answers = [("stop", "Stop and save", "warning"), ("stop-now", "Stop now", "error")]
        answers.append(("cancel", "Cancel", "default"))
    title, names = f"{what} {'queued' if queued else 'live'}", "\n".join(runs)
    return Question(title, f"{names}\n \n{text}", [("quit", "Quit", "primary"), *answers])


def _ended_question(runs: Sequence[RunDir]) -> Question:
    title = "The run has ended" if len(runs) == 1 else "The runs have ended"
    names = "\n".join(map(titled, runs))
    return Question(title, names, [("quit", "Quit", "primary"), ("cancel", "Cancel", "default")])


ON_THEIR_WAY_S = 1.5
"""Time for the reaper of a run that died just now; processes that remain are orphans."""


async def offer_to_end_strays(app: App[Any], runs_dir: Path) -> None:
    """Looks for orphans of a directory's runs and asks whether to end them; must run in a worker."""
    if not await asyncio.wrap_future(in_thread(find_orphans, runs_dir)):
        return
    await asyncio.sleep(ON_THEIR_WAY_S)
    if not (orphans := await asyncio.wrap_future(in_thread(find_orphans, runs_dir))):
        return
    answer = await app.push_screen_wait(_stray_question(orphans))
    if answer != "end":
        app.notify("They keep running. To end them later: tuiapp doctor --end-strays", markup=False)
        return
    left = await asyncio.to_thread(end_orphans, orphans)
    if left:
        pids = ", ".join(str(orphan.pid) for orphan in left)
        app.notify(f"Still running: pid {pids}. A driver may hold them.", severity="warning", markup=False)
    else:
        app.notify("Ended 1 process." if len(orphans) == 1 else f"Ended {len(orphans)} processes.", markup=False)


def _stray_question(orphans: list[Orphan]) -> Choice:
    return Choice(
        "A run has left processes behind",
        f"{describe_orphans(orphans)}\n \nTheir supervisor has died: nothing watches them, and they may hold memory "
        "and GPUs. The run can be resumed from its last checkpoint either way.",
        [("end", "End them", "warning"), ("cancel", "Keep them", "default")],
    )
