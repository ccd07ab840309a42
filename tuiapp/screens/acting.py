"""What all screens do with an action: its question is asked, and its outcome shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from textual.app import App

from tuiapp.actions import resume, stop
from tuiapp.actions.action import ActionError, Outcome, Question, Severity, some
from tuiapp.actions.resume import Refused, Resumable, Resumer
from tuiapp.actions.stop import Stoppable
from tuiapp.library.export import ExportError
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.dialog import Choice
from tuiapp.terminal.slow_disk import patiently
from tuiapp.trainers.config.machine import inspect_machine
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import AboutError
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import plural, sanitize_lines

NOTICE_S = 20.0
"""How long notices of more than a few words are shown."""


def tell(app: App[Any], text: str, severity: Severity, *, title: str = "", timeout: float | None = NOTICE_S) -> None:
    """Shows a notice whose text is from elsewhere, without markup."""
    lines = "\n".join(sanitize_lines(text))
    app.notify(lines, title=title, severity=severity, timeout=timeout, markup=False)


async def perform(
    app: App[Any],
    do: Callable[..., Outcome],
    *arguments: object,
    title: str = "",
    meanwhile: str | None = None,
    **named: object,
) -> Outcome:
    """Does an action in a thread, and shows what came of it.

    `title` says what was done, `meanwhile` what is being done; None: nothing that takes long unless the disk is slow.
    """
    call = asyncio.to_thread(do, *arguments, **named)
    if meanwhile:
        app.notify(meanwhile)
    try:
        outcome = await (patiently(app, call) if meanwhile is None else call)
    except (ActionError, AboutError, ExportError) as error:
        outcome = Outcome()
        outcome.say(str(error), "error")
    if lines := outcome.of("information"):
        tell(app, some(lines), "information", title=title, timeout=NOTICE_S if title else None)
    for severity, text in outcome.notes:
        if severity != "information":
            tell(app, text, severity, title=f"Not {title.lower()}" if title and severity == "error" else title)
    return outcome


async def ask_stop(
    app: App[Any], runs: Sequence[Stoppable], is_live: Callable[[RunDir], bool], *, again: bool, others: int = 0
) -> list[RunDir]:
    """Stops runs after asking; returns those that were asked to. Must run in a worker.

    `is_live` is called in a thread; `again` and `others` are as of `stop.question`.
    """

    def live() -> list[Stoppable]:
        return [run for run in runs if is_live(run.run)]

    def question() -> Question:
        left = live()
        return stop.question(left, again=again, others=others + len(runs) - len(left)) if left else stop.ended(runs)

    first_question = stop.question(runs, again=again, others=others)
    answer: str | None = await app.push_screen_wait(Choice(*first_question, now=question))
    if answer not in ("stop", "stop-now"):
        return []
    # Some may have ended meanwhile.
    outcome = await perform(app, lambda: stop.do([stoppable.run for stoppable in live()], now=again))
    if not outcome.notes:
        app.notify(f"{stop.ended(runs).title}.")
    return outcome.done


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


async def ask_export(app: App[Any], runs: Sequence[RunDir]) -> None:
    """Exports the figures of runs, each to a file or directory of its own; must run in a worker."""
    from tuiapp.actions import export
    from tuiapp.screens.export_dialog import ExportDialog

    if wanted := await app.push_screen_wait(ExportDialog([run.run_id for run in runs])):
        await perform(app, export.do, runs, *wanted, title="Exported", meanwhile="Exporting…")


async def ask_report(app: App[Any], infos: Sequence[RunInfo]) -> None:
    """Writes a report of runs, after asking where; must run in a worker."""
    from tuiapp.actions import report
    from tuiapp.screens.export_dialog import ReportDialog

    if why := report.refusal(len(infos)):
        app.notify(why, severity="warning")
    elif path := await app.push_screen_wait(ReportDialog(report.suggested(infos), len(infos))):
        runs = [info.directory for info in infos]
        await perform(app, report.do, runs, path, title="Written", meanwhile="Writing the report…")


def copy_path(app: App[Any], *runs: RunDir) -> None:
    """Copies the path of a run's directory, of several one a line."""
    paths = "\n".join(str(run.path) for run in runs)
    app.copy_to_clipboard(paths)
    tell(app, paths, "information", title="Copied")
