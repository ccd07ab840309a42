"""A machine that holds the program up between two instructions does not make its timers be forgotten."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from textual import _time, timer

from tests.kit import histories as h
from tests.kit.run_app import LARGE, RunApp, until
from tests.kit.shown import shown_lines
from tuiapp.app import TuiApp
from tuiapp.trainers.contract.events import LogLine
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.log_view import LogView


def late_time() -> float:
    """The time, for a timer for one time: a second after it has looked what time it is."""
    frame = sys._getframe(1)
    once = frame.f_code is timer.Timer._run.__code__ and frame.f_locals["_repeat"] == 0
    return time.monotonic() + (once and "next_timer" in frame.f_locals)


async def test_a_run_is_followed_though_all_timers_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    # Textual's own one-shot timers do not fire here: the app never comes to rest.
    monkeypatch.setattr("tests.kit.at_rest.REST_S", 0.1)
    app = RunApp()
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: app.screen is app.run_screen)
        monkeypatch.setattr(_time, "get_time", late_time)
        app.feed.events += h.running()
        for number in range(3):
            app.feed.events.append(LogLine(rank=0, stream="stdout", text=f"line {number}", **h.at(9 + number)))
            await until(pilot, lambda: not app.feed.events)
        await until(pilot, lambda: shown_lines(app.run_screen.query_one(LogView))[-1:] == ["line 2"])
        assert app.run_screen.query_one("#loss", ChartPanel).drawings


@pytest.mark.usefixtures("home")
async def test_the_app_sets_sure_timers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = TuiApp(runs_dir=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        monkeypatch.setattr(_time, "get_time", late_time)
        done: list[int] = []
        app.set_timer(0.001, lambda: done.append(1))
        await until(pilot, lambda: done == [1])
