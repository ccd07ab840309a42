"""Resumes ended runs, one or several, after asking with which configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from textual.app import App

from tuiapp.actions import resume
from tuiapp.actions.action import ActionError
from tuiapp.actions.resume import Refused, Resumable, Resumer
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.acting import perform, tell
from tuiapp.terminal.patience import patiently
from tuiapp.trainers.config.machine import inspect_machine
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.text import plural


async def ask_resume(
    app: App[Any],
    find: Callable[[], tuple[Sequence[Resumable], Refused]],
    resumer: Resumer,
    begun: Callable[[], bool] = lambda: True,
) -> list[RunDir]:
    """Resumes the runs found after asking with which keys; returns those that were. Must run in a worker.

    `find` is called in a thread, and returns those that cannot go on, too; `begun` is called on consent and may cancel
    with False.
    """
    try:
        (runs, refused), machine = await patiently(app, in_thread(lambda: (find(), inspect_machine())))
    except ActionError as error:
        tell(app, str(error), "warning")
        return []
    if not runs:
        name, why = refused[0]
        first = f"None of these {len(refused)} runs can go on. The first, {name}: " if len(refused) > 1 else ""
        tell(app, f"{first}{why}", "warning")
        return []
    # Imported here: its fields must not delay a screen's first picture.
    from tuiapp.screens.resume_dialog import ResumeDialog

    what = runs[0].name if len(runs) == 1 and not refused else plural(len(runs), "run")
    wanted = await app.push_screen_wait(ResumeDialog(f"Resume {what}", runs, machine, refused))
    if wanted is None or not begun():
        return []
    return (await perform(app, resume.do, wanted, resumer, title="Resumed", meanwhile="Resuming…")).done
