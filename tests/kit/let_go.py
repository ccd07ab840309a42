"""Shows the runs and goes back, again and again: `python -m tests.kit.let_go DIR`.

Prints how many of these screens are still held. A program of its own: what other tests of a process hold on to says
nothing of this one.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from pathlib import Path
from typing import Any

from textual.screen import Screen

from tests.kit.configure_app import until
from tuiapp.app import TuiApp
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.config.machine import Machine

ROUNDS = 8
"""The collector looks when a further screen comes, and lets go of what was gone by then."""


async def main(directory: Path) -> None:
    """Open and leave the list, and count what is left of it."""
    machine = Machine(
        cpu_cores=2, memory_total_bytes=8 << 30, memory_available_bytes=None, gpus=(), driver=None, gpu_problem="none"
    )
    app = TuiApp(runs_dir=directory, machine=machine)
    shown: list[weakref.ref[Screen[Any]]] = []
    async with app.run_test() as pilot:
        for _ in range(ROUNDS):
            await pilot.press("ctrl+g")
            await until(pilot, lambda: isinstance(app.screen, RunsScreen))
            shown.append(weakref.ref(app.screen))
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, ConfigureScreen))
        print(sum(each() is not None for each in shown))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
