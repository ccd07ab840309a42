"""The screen of a run's profile."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Static

from tests.kit import histories as h
from tests.kit.run_app import LARGE, RunApp, settled, until
from tests.screens.test_run_control import said, told
from tuiapp.screens.profile import ProfileScreen
from tuiapp.trainers.contract import events as ev


def text(app: RunApp) -> str:
    assert isinstance(app.screen, ProfileScreen)
    return str(app.screen.query_one("#profile", Static).content)


async def test_the_key_has_steps_profiled_and_shows_them(tmp_path: Path) -> None:
    app = RunApp(h.running(), path=tmp_path)
    app.run_dir.commands.mkdir()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("P")
        assert await told(pilot, app.run_dir) == ["profile=10"]
        await until(pilot, lambda: text(app) == "Profiling 10 steps …")
        app.feed.events.append(h.steps(0, 131, 133, 8.9))
        await until(pilot, lambda: text(app) == "Profiling step 3 of 10 …")
        app.feed.events += h.profiles(step=131)
        await until(pilot, lambda: "of rank 0, per step" in text(app))
        assert "steps 131 to 140" in text(app)
        await pilot.press("r")
        await until(pilot, lambda: "of rank 1, per step" in text(app))
        # Opened again it shows what there is, and asks for no more.
        await pilot.press("escape", "P")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen) and "steps 131" in text(app))
        assert list(app.run_dir.commands.iterdir()) == []
        await pilot.press("P")
        assert await told(pilot, app.run_dir) == ["profile=10"]


async def test_a_profiler_that_fails_is_told(tmp_path: Path) -> None:
    app = RunApp(h.running(), path=tmp_path)
    app.run_dir.commands.mkdir()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("P")
        await until(pilot, lambda: text(app) == "Profiling 10 steps …")
        app.feed.events.append(
            ev.Alert(kind="profile", rank=1, step=131, text="the profiler did not start", **h.at(20))
        )
        await until(pilot, lambda: text(app) == "Rank 1: the profiler did not start. P profiles the next 10 steps.")


@pytest.mark.nightly
async def test_of_an_ended_run_nothing_is_asked(tmp_path: Path) -> None:
    app = RunApp(h.completed(), path=tmp_path)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen) and "of a run that trains" in text(app))
        await pilot.press("P", "r")
        await until(pilot, lambda: "No step was profiled." in said(app))
