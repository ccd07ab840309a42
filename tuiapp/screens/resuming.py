"""Resumes ended runs, one or several, after asking with which configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from textual.app import App

from tuiapp.library.in_thread import in_thread
from tuiapp.screens.run_control import tell
from tuiapp.screens.runs_actions import is_script
from tuiapp.terminal.patience import patiently
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import Resumed
from tuiapp.trainers.state.resume_point import resume_point
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import plural
from tuiapp.view.run_list import brief

T = TypeVar("T")

Resumer: TypeAlias = Callable[[RunDir, RunConfig | None], Resumed]
"""Resumes a run, with another configuration if one is given; called in a thread."""


@dataclass(frozen=True, slots=True)
class Resumable:
    """A run that has ended, and what it goes on from."""

    run: RunDir
    name: str
    config: RunConfig
    status: str
    step: int | None
    """Of the checkpoint; None of a script."""
    done: int
    """The last step that was made."""


Wanted: TypeAlias = Sequence[tuple[Resumable, RunConfig]]
"""Runs that go on, each with its configuration."""


class CannotResumeError(Exception):
    """Says why a run cannot go on."""


async def confirm_resume(
    app: App[Any],
    run: RunDir,
    name: str,
    resumer: Resumer,
    status: str,
    step: int | None,
    done: int,
    begun: Callable[[], bool] = lambda: True,
    *,
    script: bool = False,
) -> bool:
    """Resumes an ended run after asking with which keys; returns whether it was resumed. Must run in a worker.

    `step` is the checkpoint's: None searches the disk; `begun` is called on consent and may cancel with False. A
    `script` has none of ours.
    """
    find = partial(_with_machine, lambda: _resumable(run, name, status, step, done, script=script))
    try:
        one, machine = await patiently(app, in_thread(find))
    except CannotResumeError as error:
        tell(app, str(error), "warning")
        return False
    return await _ask(app, f"Resume {name}", [one], machine, [], resumer, begun) > 0


async def confirm_resume_all(
    app: App[Any], infos: Sequence[RunInfo], resumer: Resumer, refusal: Callable[[RunInfo], str]
) -> bool:
    """Resumes those of several runs that can be, all with the same changes; returns whether any was.

    `refusal` says why one cannot go on, "" if it may. Must run in a worker.
    """
    find = partial(_with_machine, lambda: _all_resumable(infos, refusal))
    (runs, refused), machine = await patiently(app, in_thread(find))
    if not runs:
        name, why = refused[0]
        tell(app, f"None of these {len(infos)} runs can go on. The first, {name}: {why}", "warning")
        return False
    resumed = await _ask(app, f"Resume {plural(len(runs), 'run')}", runs, machine, refused, resumer)
    if resumed:
        app.notify(f"Resumed {plural(resumed, 'run')}.")
    return resumed > 0


def _with_machine(find: Callable[[], T]) -> tuple[T, Machine]:
    return find(), inspect_machine()


def _all_resumable(
    infos: Sequence[RunInfo], refusal: Callable[[RunInfo], str]
) -> tuple[list[Resumable], list[tuple[str, str]]]:
    """Returns the runs that may go on, and the others' names, each with why not."""
    found, refused = list[Resumable](), list[tuple[str, str]]()
    for info in infos:
        why = refusal(info)
        if not why:
            run, done = info.directory, info.summary.steps
            try:
                found.append(_resumable(run, brief(info), info.status, None, done, script=is_script(info)))
            except CannotResumeError as error:
                why = str(error)
        if why:
            refused.append((brief(info), why))
    return found, refused


def _resumable(run: RunDir, name: str, status: str, step: int | None, done: int, *, script: bool) -> Resumable:
    if not script and step is None:
        if (point := resume_point(run)) is None:
            raise CannotResumeError("There is no checkpoint to resume from.")
        step = point.step
    try:
        config = read_config(run)
    except (ConfigError, OSError) as error:
        raise CannotResumeError(f"Its configuration cannot be read: {error}") from error
    return Resumable(run, name, config, status, None if script else step, done)


async def _ask(
    app: App[Any],
    question: str,
    runs: Sequence[Resumable],
    machine: Machine,
    refused: Sequence[tuple[str, str]],
    resumer: Resumer,
    begun: Callable[[], bool] = lambda: True,
) -> int:
    """Asks with which keys, and resumes; returns how many were resumed."""
    # Imported here: its fields must not delay a screen's first picture.
    from tuiapp.screens.resume_dialog import ResumeDialog

    wanted = await app.push_screen_wait(ResumeDialog(question, runs, machine, refused))
    if wanted is None or not begun():
        return 0
    app.notify("Resuming…")
    resumed = 0
    for one, config in wanted:
        whose = f"{one.name}: " if len(runs) > 1 else ""
        try:
            notes = (await asyncio.to_thread(resumer, one.run, config if config != one.config else None)).notes
        except Exception as error:  # Shown to the user; the run is unchanged.
            tell(app, f"{whose}{error or repr(error)}", "error", title="Not resumed")
        else:
            resumed += 1
            for note in notes:
                tell(app, f"{whose}{note}", "warning")
    return resumed
