"""The footer shows whole keys only, and always the palette's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.screen import Screen
from textual.widgets._footer import FooterKey

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.run_app import until
from tests.kit.stage import Stage, run_screen
from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise

SCREENS: dict[str, Callable[[], Screen[Any] | None]] = {
    "configure": lambda: None,
    "running": lambda: run_screen(h.running()),
    "completed": lambda: run_screen(h.completed()),
    "stopped": lambda: run_screen(interrupted.stopped()),
    "runs": lambda: RunsScreen(Path("/home/ada/runs")),
    "compare": lambda: CompareScreen([summarise(RunDir(Path(f"/home/ada/runs/{name}"))) for name in "ab"]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCREENS)
async def test_its_keys_fit_80_columns(name: str) -> None:
    app = Stage(SCREENS[name]())
    async with app.run_test(size=(80, 24)) as pilot:

        def shown() -> list[FooterKey]:
            return [key for key in app.screen.query(FooterKey) if key.display]

        await until(pilot, lambda: any(key.key_display == "^p" for key in shown()))
        await pilot.pause(0.3)
        assert max(key.region.right for key in shown()) <= 80
        few = len(shown())
        await pilot.resize_terminal(160, 24)
        await until(pilot, lambda: len(shown()) == len(app.screen.query(FooterKey)))
        assert max(key.region.right for key in shown()) <= 160
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: len(shown()) == few)


async def test_while_a_text_is_typed_no_key_is_offered_that_types() -> None:
    app = Stage(run_screen(h.running()))
    async with app.run_test(size=(120, 40)) as pilot:

        def offered() -> set[str]:
            return {key.key_display for key in app.screen.query(FooterKey) if key.display}

        await until(pilot, lambda: "/" in offered())
        await pilot.press("slash")
        await until(pilot, lambda: "s" not in offered())
        assert offered() == {"^y", "^p"}
        await pilot.press("escape")
        await until(pilot, lambda: "/" in offered())
