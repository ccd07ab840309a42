"""A screen that lies beneath a question rests, and still shows what comes; a new layout is painted once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from textual.screen import Screen

from tests import histories as h
from tests.screens.run_app import LARGE, RunApp, settled, until
from tests.snapshots.screen_text import screen_text
from tuiapp.screens.confirm import Choice
from tuiapp.widgets.run_header import RunHeader


async def test_with_a_question_open_nothing_beneath_is_painted_again_and_again() -> None:
    app = RunApp(h.completed())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        app.push_screen(Choice("Really?", "Think about it.", [("yes", "Yes", "primary")]))
        await until(pilot, lambda: isinstance(app.screen, Choice) and bool(app.screen.query("Button")))
        await pilot.pause(0.3)
        painted = []
        screen, beneath = app.screen, app.run_screen
        for each in (screen, beneath):
            timer_update = each._on_timer_update

            def count(run: object = timer_update) -> None:
                painted.append(run)
                run()  # type: ignore[operator]

            each._update_timer._callback = count
        await pilot.pause(1.0)
        # Sixty each, were it not for the mend.
        assert len(painted) < 10


async def test_what_comes_is_shown_beneath_a_question() -> None:
    app = RunApp(h.running(last_step=72))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        app.push_screen(Choice("Really?", "Think about it.", [("yes", "Yes", "primary")]))
        await until(pilot, lambda: isinstance(app.screen, Choice))
        app.feed.events += h.completed()[-3:]
        await until(pilot, lambda: app.run_screen.state.status == "completed")
        header = app.run_screen.query_one(RunHeader)

        await until(pilot, lambda: "COMPLETED" in str(header.render()))
        await until(pilot, lambda: "COMPLETED" in screen_text(cast(Any, app)))


async def test_panels_that_get_their_room_back_are_painted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[str] = []
    app = RunApp(h.completed())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        display = app._display

        def keep(screen: Screen[Any], update: Any) -> None:
            painted.append(update.render_segments(app.console))
            display(screen, update)

        monkeypatch.setattr(app, "_display", keep)
        for key in "53":
            await pilot.press(key)
            await until(pilot, lambda: bool(app.run_screen.chosen))
            await pilot.pause(0.2)
            painted.clear()
            await pilot.press(key)
            await until(pilot, lambda: "1 loss" in "".join(painted))
            await pilot.pause(0.2)
            # What follows the panels is no more than the footer; it was all charts once more.
            first = next(number for number, picture in enumerate(painted) if "1 loss" in picture)
            assert sum(map(len, painted[first + 1 :])) < len(painted[first]) / 5


async def test_a_new_layout_is_painted_though_widgets_are_exchanged_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    app = RunApp(h.completed())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        display, screen = app._display, app.run_screen

        def keep(painted: Screen[Any], update: Any) -> None:
            # While widgets are exchanged, as when a footer is made anew, Textual writes nothing.
            if not app._batch_count and update is not None:
                written.append(update.render_segments(app.console))
            display(painted, update)

        monkeypatch.setattr(app, "_display", keep)
        screen._compositor._dirty_regions.add(screen.size.region)
        screen._refresh_layout()
        with app.batch_update():
            for _ in range(20):
                await asyncio.sleep(0)
        await until(pilot, lambda: "1 loss" in "".join(written))


async def test_a_run_is_laid_out_while_it_is_read_and_painted_when_it_has_been(monkeypatch: pytest.MonkeyPatch) -> None:
    for patience in ("run.FIRST_PICTURE_S", "run_reader.CATCH_UP_S"):
        monkeypatch.setattr(f"tuiapp.screens.{patience}", 60.0)
    painted: list[str] = []
    app = RunApp()
    app.feed.behind = True
    display = app._display

    def keep(screen: Screen[Any], update: Any) -> None:
        painted.append(update.render_segments(app.console))
        display(screen, update)

    monkeypatch.setattr(app, "_display", keep)
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: bool(app.run_screen.query_one(RunHeader).size))
        await pilot.pause(0.1)
        assert not any("3 ranks" in picture for picture in painted)
        app.feed.events += h.completed()
        app.feed.behind = False
        await until(pilot, lambda: any("3 ranks" in picture for picture in painted))
        first = next(picture for picture in painted if "3 ranks" in picture)
        assert "COMPLETED" in first
        assert any("\u2800" < each <= "\u28ff" for each in first)
