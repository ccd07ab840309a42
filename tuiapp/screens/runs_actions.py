"""What is done with several listed runs at once, after asking: deleted, exported, reported, stopped, resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from textual.app import App

from tuiapp.library.export import ExportError, export_to
from tuiapp.library.in_thread import in_thread
from tuiapp.library.removal import RemovalError, remove_run, sweep_removed
from tuiapp.library.report_files import MOST, write_report
from tuiapp.screens.confirm import Choice
from tuiapp.screens.export_dialog import ExportDialog
from tuiapp.screens.report_dialog import ReportDialog
from tuiapp.screens.run_control import send, tell
from tuiapp.terminal.patience import patiently
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.user_code import slug
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.history import find_gaps
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import join_words, plural
from tuiapp.view.run_list import title

NAMES = 6
"""Most runs that a question names."""


def is_script(info: RunInfo) -> bool:
    """Whether a run is of a user's script."""
    return info.config is not None and not BACKENDS[info.config.backend].builtin


def _names(infos: Sequence[RunInfo], notes: Mapping[RunDir, str] = MappingProxyType({})) -> str:
    lines = [join_words([title(info), notes.get(info.directory, "")]) for info in infos[:NAMES]]
    return "\n".join([*lines, *([f"and {len(infos) - NAMES} more"] if len(infos) > NAMES else [])])


async def confirm_stop_all(app: App[Any], infos: Sequence[RunInfo], stopping: Collection[RunDir]) -> set[RunDir]:
    """Stops those of several runs that are live; returns those that were asked to. Must run in a worker.

    `stopping` are those that were asked before: they are stopped at once if all are, and else left alone.
    """
    live = [info for info in infos if info.is_live]
    again = bool(live) and all(info.directory in stopping for info in live)
    asked = live if again else [info for info in live if info.directory not in stopping]
    if not asked:
        app.notify("None of these runs is live.", severity="warning")
        return set()
    others = f"\nThe rest of the {len(infos)} are over, or stopping already." if len(asked) < len(infos) else ""
    what = plural(len(asked), "run")
    if again:
        how = "They are stopping. Stop now ends their ranks at once, without another checkpoint."
        answers = [("wait", "Keep waiting", "default"), ("stop-now", "Stop now", "error")]
    else:
        how = "Each saves a checkpoint after the step that its ranks agree on, and ends."
        if any(is_script(info) for info in asked):
            how += " A script that does not ask should_stop() gets SIGTERM."
        if any(info.status == "queued" for info in asked):
            how += " One that is queued does not start."
        answers = [("stop", "Stop them", "warning"), ("run-on", "Keep running", "default")]
    answer = await app.push_screen_wait(
        Choice(f"Stop {what}{' now' if again else ''}?", f"{_names(asked)}\n \n{how}{others}", answers)
    )
    if answer not in ("stop", "stop-now"):
        return set()
    told = set[RunDir]()
    for info in asked:
        run = info.directory
        # Some may have ended meanwhile.
        if await patiently(app, in_thread(_is_heard, run)) and await send(app, run, "stop-now" if again else "stop"):
            told.add(run)
    app.notify(f"Asked {plural(len(told), 'run')} to stop.")
    return told


def _is_heard(run: RunDir) -> bool:
    return run.liveness() is not Liveness.NOBODY


async def confirm_delete(app: App[Any], infos: Sequence[RunInfo]) -> bool:
    """Deletes ended runs after asking; returns whether any was deleted. Must run in a worker."""
    if live := await patiently(app, in_thread(_live, infos)):
        names = ", ".join(map(title, live[:NAMES]))
        tell(app, f"{names}: still running. Stop it first (s), then delete it.", "warning")
        return False
    what = "this run" if len(infos) == 1 else plural(len(infos), "run")
    choice = Choice(
        f"Delete {what}?",
        f"{_names(infos)}\n \nConfiguration, curves, checkpoints and exported model are deleted permanently.",
        [("keep", "Keep", "default"), ("delete", "Delete", "error")],
    )
    if await app.push_screen_wait(choice) != "delete":
        return False
    problems = await patiently(app, asyncio.to_thread(_delete, infos))
    for problem in problems:
        tell(app, problem, "error")
    deleted = len(infos) - len(problems)
    if deleted:
        app.notify(f"Deleted {plural(deleted, 'run')}.")
    return deleted > 0


def _live(infos: Sequence[RunInfo]) -> list[RunInfo]:
    return [info for info in infos if info.directory.is_live()]


def _delete(infos: Sequence[RunInfo]) -> list[str]:
    problems = []
    for info in infos:
        try:
            remove_run(info.directory)
        except RemovalError as error:
            problems.append(str(error))
    for parent in {info.directory.path.parent for info in infos}:
        sweep_removed(parent)
    return problems


async def ask_export(app: App[Any], runs: Sequence[RunDir]) -> None:
    """Exports the figures of runs, each to a file or directory of its own; must run in a worker."""
    wanted = await app.push_screen_wait(ExportDialog([run.run_id for run in runs]))
    if wanted is None:
        return
    app.notify("Exporting…")
    rows, missing = 0, ""
    try:
        for run, path in zip(runs, wanted.paths, strict=True):
            rows += await asyncio.to_thread(export_to, path, run, wanted.what, wanted.form)
            if words := (await asyncio.to_thread(find_gaps, run.journal)).words:
                missing += f"\n{words}" if len(runs) == 1 else f"\n{run.run_id}: {words}"
    except ExportError as error:
        tell(app, str(error), "error", title="Not exported")
    else:
        first = wanted.paths[0].absolute()
        where = first if len(runs) == 1 else f"{len(runs)} runs in {first.parent}"
        words = f"{plural(rows, 'row')}: {where}{missing}"
        tell(app, words, "warning" if missing else "information", title="Exported")


async def ask_report(app: App[Any], infos: Sequence[RunInfo]) -> None:
    """Writes a report of runs, after asking where; must run in a worker."""
    if len(infos) > MOST:
        app.notify(f"A report has {MOST} runs at most, not {len(infos)}: mark fewer (x).", severity="warning")
        return
    group = infos[0].about.group
    name = "report"
    if len(infos) == 1:
        name = infos[0].directory.run_id
    elif group and all(info.about.group == group for info in infos):
        name = f"report-{slug(group)}"
    path = await app.push_screen_wait(ReportDialog(name, len(infos)))
    if path is None:
        return
    app.notify("Writing the report…")
    try:
        await asyncio.to_thread(write_report, path, [info.directory for info in infos])
    except ExportError as error:
        tell(app, str(error), "error", title="Not written")
    else:
        tell(app, f"{plural(len(infos), 'run')}: {path.absolute()}", "information", title="Report")
