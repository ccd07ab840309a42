"""Leaving the program while runs continue."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from textual.app import App

from trainers.contract.mailbox import Command, send
from trainers.contract.rundir import RunDir
from trainers.contract.summary import summarise
from tuiapp.library.find import titled
from tuiapp.screens.confirm import Choice, Question

Leaving: TypeAlias = Literal["stay", "leave", "stopping"]
"""The decision: not to leave, to leave the runs running, or to leave after stopping them."""

COMMANDS: dict[str, Command] = {"stop": "stop", "kill": "stop-now"}
"""Answer → the command sent to the runs."""


async def confirm_quit(app: App[Any], runs: Sequence[RunDir]) -> Leaving:
    """Asks whether to stop the runs that continue, and sends the command; must run in a worker."""

    def now() -> Question:
        live = [run for run in runs if run.is_live()]
        return _question(live) if live else _ended(runs)

    answer = await app.push_screen_wait(Choice(*_question(runs), now=now))
    if answer == "leave":
        return "leave"
    if answer not in COMMANDS:
        return "stay"
    for run in filter(RunDir.is_live, runs):
        try:
            send(run.commands, COMMANDS[answer])
        except OSError as error:
            app.notify(f"{titled(run)} cannot be stopped: {error.strerror}", severity="error", markup=False)
            return "stay"
    return "stopping"


def farewell(going_on: Iterable[RunDir], stopping: Container[RunDir]) -> str:
    """Returns a line for each run that continues after the program ends."""
    return "\n".join(
        f"Run {titled(run)} is stopping. See the result: tuiapp attach {run.run_id}"
        if run in stopping
        else f"Run {titled(run)} continues. Watch it: tuiapp attach {run.run_id}"
        for run in going_on
    )


def _question(runs: Sequence[RunDir]) -> Question:
    names = "\n".join(map(titled, runs))
    them = "it" if len(runs) == 1 else "them"
    if all(summarise(run).status == "queued" for run in runs):
        jobs = "Its Slurm job stays" if len(runs) == 1 else "Their Slurm jobs stay"
        return Question(
            "A run is queued" if len(runs) == 1 else f"{len(runs)} runs are queued",
            f"{names}\n \n{jobs} in the queue after you quit.\nOr cancel {them}: training has not begun.",
            [
                ("leave", "Leave queued", "primary"),
                ("stop", "Cancel jobs" if runs[1:] else "Cancel job", "warning"),
                ("cancel", "Stay", "default"),
            ],
        )
    return Question(
        "A run is live" if len(runs) == 1 else f"{len(runs)} runs are live",
        f"{names}\n \nTraining continues after you quit.\nOr end {them} with a checkpoint, or kill {them}.",
        [
            ("leave", "Leave running", "primary"),
            ("stop", "Stop and save", "warning"),
            ("kill", "Kill", "error"),
            ("cancel", "Cancel", "default"),
        ],
    )


def _ended(runs: Sequence[RunDir]) -> Question:
    title = "The run has ended" if len(runs) == 1 else "The runs have ended"
    names = "\n".join(map(titled, runs))
    return Question(title, names, [("leave", "Quit", "primary"), ("cancel", "Cancel", "default")])
