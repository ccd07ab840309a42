"""Searching and filtering the log."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit.run_app import LARGE, RunApp, settled
from tests.kit.shown import shown_lines
from tuiapp.trainers.contract.events import AnyEvent, LogLine
from tuiapp.widgets import log_view
from tuiapp.widgets.log_view import LogRows, LogView


def events() -> list[AnyEvent]:
    lines: list[AnyEvent] = [
        LogLine(rank=number % 2, stream="stderr" if number % 3 == 0 else "stdout", text=text, **h.at(3 + number / 100))
        for number, text in enumerate(["needle" if n % 20 == 5 else f"line {n}" for n in range(100)])
    ]
    return [*h.running(), *lines]


@pytest.mark.nightly
async def test_next_and_previous_among_all_lines() -> None:
    app = RunApp(events())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        log = app.run_screen.query_one(LogView)
        rows = log.query_one(LogRows)
        await pilot.press("slash", *"NEEDLE", "enter")
        assert len(shown_lines(log)) == 5
        await pilot.press("n")
        assert len(shown_lines(log)) > 100
        assert not log.follow
        assert "1 of 5" in log._place or "of 5" in log._place
        first = rows._found
        await pilot.press("n")
        assert rows._found != first
        await pilot.press("N")
        assert rows._found == first
        await pilot.press("escape")
        assert (rows.needle, log._place) == ("", "")
        assert app.screen is app.run_screen


async def test_one_stream_alone() -> None:
    app = RunApp(events())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        log = app.run_screen.query_one(LogView)
        everything = len(shown_lines(log))
        await pilot.press("l")
        assert len(shown_lines(log)) == 66
        await pilot.press("l")
        assert len(shown_lines(log)) == 34 + 2
        await pilot.press("l")
        assert all("line" not in line for line in shown_lines(log))
        await pilot.press("l")
        assert len(shown_lines(log)) == everything


async def test_lines_that_no_longer_fit_are_followed_as_soon_as_there_is_a_scroll_bar() -> None:
    app = RunApp(h.beginning(1))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        rows = app.run_screen.query_one(LogRows)
        assert not rows.show_vertical_scrollbar
        rows.add(list(app.run_screen.state.log) * 20)
        rows.show_vertical_scrollbar = True
        assert rows.scroll_offset.y == rows.max_scroll_y > 0
        assert rows.follow


@pytest.mark.nightly
async def test_where_one_reads_stays_while_the_oldest_lines_go(monkeypatch: pytest.MonkeyPatch) -> None:
    app = RunApp(events())
    async with app.run_test(size=(160, 50)) as pilot:
        await settled(pilot, app)
        rows = app.run_screen.query_one(LogRows)
        rows.add(list(app.run_screen.state.log) * 3)
        monkeypatch.setattr(log_view, "MAX_ROWS", len(rows._rows))
        rows.follow = False
        rows.scroll_to(y=40, animate=False, immediate=True, force=True)
        rows.add(list(app.run_screen.state.log)[:10])
        assert rows.scroll_offset.y == 30
