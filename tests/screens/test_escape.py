"""Escape closes the innermost thing; keys that have nothing to show say so."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.run_app import LARGE, SMALL, RunApp, settled
from tests.kit.shown import notices
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.log_view import LogView


async def press(pilot: Pilot[Any], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


@pytest.mark.nightly
async def test_escape_closes_search_cursor_and_panel_one_by_one() -> None:
    app = RunApp(h.completed())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        run = app.run_screen
        chart, log = run.query_one("#loss", ChartPanel), run.query_one(LogView)
        await press(pilot, "5", "slash", *"loss", "enter", "v")
        run.set_focus(None)
        assert (log.pattern, chart.cursor is not None, run.chosen) == ("loss", True, "log")
        await press(pilot, "escape")
        assert (log.pattern, chart.cursor is not None, run.chosen) == ("", True, "log")
        await press(pilot, "escape")
        assert (chart.cursor, run.chosen) == (None, "log")
        await press(pilot, "escape")
        assert (run.chosen, app.screen) == ("", run)
        await press(pilot, "escape")
        assert app.screen is not run


async def test_a_live_runs_screen_is_left_by_the_second_escape() -> None:
    app = RunApp(h.running())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await press(pilot, "escape")
        assert app.screen is app.run_screen
        assert "Esc again goes back" in notices(app)
        await press(pilot, "escape")
        assert app.screen is not app.run_screen


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "keys"), [(LARGE, "2"), (LARGE, ""), (SMALL, "3")])
@pytest.mark.parametrize("failed", [True, False])
async def test_the_search_shows_its_prompt_wherever_it_is_started(
    size: tuple[int, int], keys: str, failed: bool
) -> None:
    app = RunApp(interrupted.failed() if failed else h.running())
    async with app.run_test(size=size) as pilot:
        await settled(pilot, app)
        await press(pilot, *keys, "slash", *"abc")
        box = app.run_screen.query_one(LogView).query_one(Input)
        assert (box.value, box.has_focus) == ("abc", True)
        assert box.region.area > 0
