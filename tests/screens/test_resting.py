"""A screen that lies beneath a question rests, and still shows what comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.screen import Screen

from tests.kit import histories as h
from tests.kit.run_app import LARGE, RunApp, settled, until
from tuiapp.screens.dialog import Choice


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
