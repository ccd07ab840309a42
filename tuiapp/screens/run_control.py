"""Commands to a run from any screen: stop, checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from textual.app import App

from tuiapp.library.commands import CannotAskError, send_command
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.confirm import Choice, Question
from tuiapp.terminal.patience import patiently
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import read_only_reason
from tuiapp.trainers.state.text import format_duration, sanitize_lines

NOTICE_S = 20.0
"""How long notices of more than a few words are shown."""

BRIEF_S = 2.0
"""How long a notice is shown of what the run itself says in a moment."""


async def ask_for_checkpoint(app: App[Any], run: RunDir) -> None:
    """Asks a run to save a checkpoint and continue."""
    if await send(app, run, "checkpoint"):
        app.notify("Requested a checkpoint; the log reports when it is saved.")


async def confirm_stop(
    app: App[Any],
    run: RunDir,
    name: str,
    *,
    again: bool,
    is_live: Callable[[], bool],
    grace_s: float | None = None,
    queued: bool = False,
    waiting: bool = False,
    alone: str = "",
) -> bool:
    """Stops a run after asking; returns whether it was asked to. Must run in a worker.

    `name` names the run in the question. `again` offers to stop an already stopping run at once; `is_live` is called
    in a thread; `grace_s` is a script's time from SIGTERM to SIGKILL. `queued`: its Slurm job waits;
    `waiting`: it waits in the queue. `alone`: what it does not end.
    """
    if waiting:
        what = "has not started. It leaves the queue, and ends."
        title, answers = "Cancel this run?", [("stop", "Cancel the run", "warning"), ("run-on", "Keep it", "default")]
    elif queued:
        what = "has not started. Its Slurm job is cancelled, and the run ends."
        title, answers = "Cancel its job?", [("stop", "Cancel the job", "warning"), ("run-on", "Keep it", "default")]
    elif again:
        what = "is stopping. Stop now ends the ranks at once, without another checkpoint."
        if grace_s is not None:
            what = "was sent SIGTERM. Stop now ends it with SIGKILL after two seconds."
        title, answers = "Stop now?", [("wait", "Keep waiting", "default"), ("stop-now", "Stop now", "error")]
    elif grace_s is not None:
        what = (
            "ends before its next step if it asks should_stop(). Otherwise it gets SIGTERM, "
            f"and SIGKILL if it still runs after {format_duration(grace_s)}."
        )
        title, answers = "Stop this script?", [("stop", "Stop", "warning"), ("run-on", "Keep running", "default")]
    else:
        what = "saves a checkpoint after the step that all ranks agree on, and ends. It can be resumed from there."
        title, answers = "Stop this run?", [("stop", "Stop and save", "warning"), ("run-on", "Keep running", "default")]
    question = Question(title, f"{name}\n{what}{f' {alone}' if alone else ''}", answers)
    ended = Question("This run has ended", f"{name}\nThere is nothing left to stop.", [("ok", "OK", "default")])
    answer = await app.push_screen_wait(Choice(*question, now=lambda: question if is_live() else ended))
    if answer not in ("stop", "stop-now"):
        return False
    if not await patiently(app, in_thread(is_live)):
        app.notify("This run has ended.")
        return False
    if not await send(app, run, "stop-now" if again else "stop"):
        return False
    if waiting:
        return True
    in_order = "stop" if grace_s is not None or queued else "save and stop"
    app.notify(f"Asked the run to {'stop now' if again and not queued else in_order}.", timeout=BRIEF_S)
    return True


def copy_path(app: App[Any], *runs: RunDir) -> None:
    """Copies the path of a run's directory, of several one a line."""
    paths = "\n".join(str(run.path) for run in runs)
    app.copy_to_clipboard(paths)
    tell(app, paths, "information", title="Copied")


def tell(app: App[Any], text: str, severity: Literal["information", "warning", "error"], *, title: str = "") -> None:
    """Shows a notice whose text is from elsewhere, without markup."""
    words = "\n".join(sanitize_lines(text))
    app.notify(words, title=title, severity=severity, timeout=NOTICE_S, markup=False)


async def send(app: App[Any], run: RunDir, command: mailbox.Command, steps: int = 0) -> bool:
    """Sends a command to a run; returns whether it has it, and otherwise says why not. Must run in a worker."""
    if reason := await patiently(app, in_thread(read_only_reason, run)):
        tell(app, f"This run takes no commands: {reason}.", "error")
        return False
    try:
        if instead := await asyncio.to_thread(partial(send_command, run, command, steps=steps)):
            tell(app, instead, "warning")
    except CannotAskError as error:
        tell(app, f"Cannot send the command to the run: {error}", "error")
        return False
    return True
