"""What can be done with runs from their list: all that is asked on the way, and what is said of the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from textual.app import App

from trainers.contract import mailbox
from trainers.contract.gaps import find_gaps
from trainers.contract.resume_point import resume_point
from trainers.contract.rundir import RunDir
from trainers.contract.summary import RunInfo
from trainers.launch import Resumed
from tuiapp.library.commands import CannotAskError, ask
from tuiapp.library.export import ExportError, export_to
from tuiapp.library.removal import RemovalError, remove_run, sweep_removed
from tuiapp.screens.confirm import Choice
from tuiapp.screens.export_dialog import ExportDialog
from tuiapp.state.text import plural, sanitize, sanitize_lines

Resumer: TypeAlias = Callable[[RunDir], Resumed]
"""Goes on with a run; called in a thread."""

NOTICE_S = 15.0
"""How long a notice stands that has more than a few words."""

NAMES = 6
"""Runs that a question names one by one."""


async def stop_asking(app: App[Any], info: RunInfo, *, again: bool) -> bool:
    """Have a run stop; must run in a worker.

    Args:
        app: Asks and tells.
        info: The run.
        again: It was asked to before: it may be stopped at once now.

    Returns:
        Whether it was told.
    """
    run = info.directory
    if again:
        choice = Choice(
            "Stop now?",
            f"{run.run_id}\nis stopping in order. Stopping now ends it at once, without a further checkpoint.",
            [("wait", "Keep waiting", "default"), ("stop-now", "Stop now", "error")],
        )
    else:
        choice = Choice(
            "Stop this run?",
            f"{run.run_id}\nsaves a checkpoint and ends. It can be resumed from there.",
            [("stop", "Stop and save", "warning"), ("run-on", "Keep running", "default")],
        )
    answer = await app.push_screen_wait(choice)
    command: mailbox.Command
    if answer == "stop":
        command = "stop"
    elif answer == "stop-now":
        command = "stop-now"
    else:
        return False
    if run.seen_live() is False:
        app.notify("This run is over by now.")
        return False
    try:
        if instead := ask(run, command):
            tell(app, instead, "warning")
    except CannotAskError as error:
        tell(app, f"Cannot ask the run for that: {error}", "error")
        return False
    app.notify("Asked the run to stop." if again else "Asked the run to save and stop.")
    return True


async def resume_asking(app: App[Any], info: RunInfo, resumer: Resumer) -> bool:
    """Go on with a run that is over; must run in a worker.

    Returns:
        Whether it goes on.
    """
    run = info.directory
    point = await asyncio.to_thread(resume_point, run)
    if point is None:
        tell(app, "It has no checkpoint to go on from. To start another one like it: n.", "warning")
        return False
    step = point.step
    anew = f" What it did after that, up to step {info.summary.steps:,}, is done anew." * (info.summary.steps > step)
    choice = Choice(
        "Resume this run?",
        f"{run.run_id}\ngoes on from step {step:,}, with the same configuration.{anew}",
        [("resume", "Resume", "primary"), ("cancel", "Cancel", "default")],
    )
    if await app.push_screen_wait(choice) != "resume":
        return False
    app.notify("Resuming…")
    try:
        resumed = await asyncio.to_thread(resumer, run)
    except Exception as error:  # Whatever it is: it is said, and the run is as it was.
        tell(app, str(error) or repr(error), "error")
        return False
    for note in resumed.notes:
        tell(app, note, "warning")
    return True


async def delete_asking(app: App[Any], infos: Sequence[RunInfo]) -> bool:
    """Delete runs that are over; must run in a worker.

    Returns:
        Whether any was deleted.
    """
    if live := [info for info in infos if info.directory.is_live()]:
        names = ", ".join(info.directory.run_id for info in live[:NAMES])
        tell(app, f"{names}: still running. Stop it first (s), then delete it.", "warning")
        return False
    names = "\n".join(info.directory.run_id for info in infos[:NAMES])
    more = f"\nand {len(infos) - NAMES} more" if len(infos) > NAMES else ""
    what = "this run" if len(infos) == 1 else plural(len(infos), "run")
    choice = Choice(
        f"Delete {what}?",
        f"{names}{more}\n \nConfiguration, curves, checkpoints and exported model are gone for good.",
        [("keep", "Keep", "default"), ("delete", "Delete", "error")],
    )
    if await app.push_screen_wait(choice) != "delete":
        return False
    problems = await asyncio.to_thread(_delete, infos)
    for problem in problems:
        tell(app, problem, "error")
    deleted = len(infos) - len(problems)
    if deleted:
        app.notify(f"Deleted {plural(deleted, 'run')}.")
    return deleted > 0


def _delete(infos: Sequence[RunInfo]) -> list[str]:
    """Delete them; what went wrong."""
    problems = []
    for info in infos:
        try:
            remove_run(info.directory)
        except RemovalError as error:
            problems.append(str(error))
    for parent in {info.directory.path.parent for info in infos}:
        sweep_removed(parent)
    return problems


async def export_asking(app: App[Any], info: RunInfo) -> None:
    """Write a run's figures to a file; must run in a worker."""
    wanted = await app.push_screen_wait(ExportDialog(info.directory.run_id))
    if wanted is None:
        return
    app.notify("Exporting…")
    try:
        count = await asyncio.to_thread(export_to, wanted.path, info.directory, wanted.what, wanted.form)
        missing = (await asyncio.to_thread(find_gaps, info.directory.journal)).words
    except ExportError as error:
        tell(app, str(error), "error", title="Not exported")
    else:
        words = f"{plural(count, 'row')}: {wanted.path.absolute()}" + (f"\n{missing}" if missing else "")
        tell(app, words, "warning" if missing else "information", title="Exported")


def tell(app: App[Any], text: str, severity: Literal["information", "warning", "error"], *, title: str = "") -> None:
    """Say something that came from elsewhere."""
    words = "\n".join(map(sanitize, sanitize_lines(text)))
    app.notify(words, title=title, severity=severity, timeout=NOTICE_S, markup=False)
