"""Deletes and exports listed runs after asking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from textual.app import App

from trainers.contract.rundir import RunDir
from trainers.state.history import find_gaps
from trainers.state.summary import RunInfo
from trainers.state.text import plural
from tuiapp.library.export import ExportError, export_to
from tuiapp.library.in_thread import in_thread
from tuiapp.library.removal import RemovalError, remove_run, sweep_removed
from tuiapp.screens.confirm import Choice
from tuiapp.screens.export_dialog import ExportDialog
from tuiapp.screens.run_control import tell
from tuiapp.terminal.patience import patiently
from tuiapp.view.run_list import title

NAMES = 6
"""Most runs that a question names."""


async def confirm_delete(app: App[Any], infos: Sequence[RunInfo]) -> bool:
    """Deletes ended runs after asking; returns whether any was deleted. Must run in a worker."""
    if live := await patiently(app, in_thread(_live, infos)):
        names = ", ".join(map(title, live[:NAMES]))
        tell(app, f"{names}: still running. Stop it first (s), then delete it.", "warning")
        return False
    names = "\n".join(map(title, infos[:NAMES]))
    more = f"\nand {len(infos) - NAMES} more" if len(infos) > NAMES else ""
    what = "this run" if len(infos) == 1 else plural(len(infos), "run")
    choice = Choice(
        f"Delete {what}?",
        f"{names}{more}\n \nConfiguration, curves, checkpoints and exported model are deleted permanently.",
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
