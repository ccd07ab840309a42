"""At the start: offers to end processes left behind by runs whose supervisor is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from textual.app import App

from tuiapp.library.in_thread import in_thread
from tuiapp.screens.confirm import Choice
from tuiapp.trainers.contract.orphans import Orphan, describe_orphans, end_orphans, find_orphans

ON_THEIR_WAY_S = 1.5
"""Time for the reaper of a run that died just now; processes that remain are orphans."""


async def offer_to_end_strays(app: App[Any], runs_dir: Path) -> None:
    """Looks for orphans of a directory's runs and asks whether to end them; must run in a worker."""
    if not await asyncio.wrap_future(in_thread(find_orphans, runs_dir)):
        return
    await asyncio.sleep(ON_THEIR_WAY_S)
    if not (orphans := await asyncio.wrap_future(in_thread(find_orphans, runs_dir))):
        return
    answer = await app.push_screen_wait(_question(orphans))
    if answer != "end":
        app.notify("They keep running. To end them later: tuiapp doctor --end-strays", markup=False)
        return
    left = await asyncio.to_thread(end_orphans, orphans)
    if left:
        pids = ", ".join(str(orphan.pid) for orphan in left)
        app.notify(f"Still running: pid {pids}. A driver may hold them.", severity="warning", markup=False)
    else:
        app.notify("Ended 1 process." if len(orphans) == 1 else f"Ended {len(orphans)} processes.", markup=False)


def _question(orphans: list[Orphan]) -> Choice:
    return Choice(
        "A run has left processes behind",
        f"{describe_orphans(orphans)}\n \nTheir supervisor has died: nothing watches them, and they may hold memory "
        "and GPUs. The run can be resumed from its last checkpoint either way.",
        [("end", "End them", "warning"), ("cancel", "Keep them", "default")],
    )
