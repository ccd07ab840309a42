"""The Run screen over a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.run_app import LARGE, RunApp, until
from tests.kit.shown import shown_lines
from tests.screens.test_run_screen import text_of
from tests.unit.state.test_replay import Clock, Source, journal
from tuiapp.feeds.feed import ReplayFeed
from tuiapp.screens.run import RunScreen
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.run_header import ReplayBar, RunHeader


def replay_app(path: Path, clock: Clock) -> tuple[RunApp, ReplayFeed]:
    run = journal(path, h.completed())
    feed = ReplayFeed(run, clock=clock, source=Source)
    app = RunApp(path=path)
    app.run_screen = RunScreen(run, feed)
    return app, feed


async def test_a_replay_is_marked_and_can_be_paused_moved_and_sped_up(tmp_path: Path) -> None:
    clock = Clock()
    app, feed = replay_app(tmp_path, clock)
    async with app.run_test(size=LARGE) as pilot:
        screen = app.run_screen
        await until(pilot, lambda: screen.is_mounted and feed.duration > 0)
        clock.now += 8.1
        await until(pilot, lambda: screen.state.step == 120)
        bar = screen.query_one(ReplayBar)
        await until(pilot, lambda: "8s of 17s" in str(bar.render()))
        assert "REPLAY ×1" in str(bar.render())
        assert "RUNNING" in str(screen.query_one(RunHeader).render())
        assert not screen.is_live
        await pilot.press("space")
        assert feed.paused
        await until(pilot, lambda: "❚❚ REPLAY" in str(bar.render()))
        await pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        assert feed.speed == 2.0
        await pilot.press("full_stop", "full_stop")
        assert feed.position == pytest.approx(8.1 + 2 * 0.05 * 17.5)
        await pilot.press(*["comma"] * 30)
        await until(pilot, lambda: screen.state.step == 0 and "no array" in text_of(screen.query_one("#sharding")))
        log = screen.query_one(LogView)
        await until(pilot, lambda: len(shown_lines(log)) == 1)
        await pilot.press("space", *["full_stop"] * 30)
        await until(pilot, lambda: screen.state.status == "completed")
