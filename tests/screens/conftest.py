from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.kit.configure_app import Launches, screen, until
from tuiapp.app import TuiApp
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.contract.rundir import default_runs_dir


@pytest.fixture
def launches() -> Launches:
    return Launches()


@pytest.fixture
def start(machine: Machine, launches: Launches) -> Callable[..., AbstractAsyncContextManager[Pilot[None]]]:
    @asynccontextmanager
    async def start(size: tuple[int, int] = (120, 40), **given: Any) -> AsyncIterator[Pilot[None]]:
        given = {"machine": machine, "launcher": launches, "runs_dir": default_runs_dir(), **given}
        async with TuiApp(**given).run_test(size=size) as pilot:
            await until(pilot, lambda: screen(pilot).is_mounted)
            await pilot.pause()
            yield pilot

    return start
