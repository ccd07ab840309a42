from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.screens.configure_app import Launches
from trainers.contract.machine import Machine
from trainers.contract.runs import default_runs_dir
from tuiapp.app import TuiApp


@pytest.fixture
def launches() -> Launches:
    return Launches()


@pytest.fixture
def start(machine: Machine, launches: Launches) -> Callable[..., AbstractAsyncContextManager[Pilot[None]]]:
    def start(size: tuple[int, int] = (120, 40), **given: Any) -> AbstractAsyncContextManager[Pilot[None]]:
        given = {"machine": machine, "launcher": launches, "runs_dir": default_runs_dir(), **given}
        return TuiApp(**given).run_test(size=size)

    return start
