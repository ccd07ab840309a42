"""A screen that another one covers: what changes on both at once is shown."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tuiapp.terminal.textual_fixes import CoveredScreenFix


class Beneath(CoveredScreenFix[None]):
    def compose(self) -> ComposeResult:
        yield Static("old beneath")


class Above(CoveredScreenFix[None]):
    CSS = "Above { align: left bottom; } Above Static { width: 12; }"

    def compose(self) -> ComposeResult:
        yield Static("old above")


def shown(screen: Screen[None]) -> str:
    """Paint what is due on a screen; returns the text of what is painted."""
    seen: list[object] = []
    app = screen.app
    display = app._display
    app._display = lambda screen, renderable: seen.append(renderable)  # type: ignore[method-assign]
    try:
        screen._on_timer_update()
    finally:
        app._display = display  # type: ignore[method-assign]
    return "".join(update.render_segments(app.console) for update in seen)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("background", "shows_through"), [("black", False), ("black 50%", True)])
async def test_a_change_beneath_hides_none_above(background: str, shows_through: bool) -> None:
    app = App[None]()
    async with app.run_test(size=(40, 10)) as pilot:
        beneath, above = Beneath(), Above()
        await app.push_screen(beneath)
        await app.push_screen(above)
        above.styles.background = background
        await pilot.pause()
        # Both are due before either is painted.
        for screen in (beneath, above):
            screen._update_timer.resume = lambda: None  # type: ignore[method-assign]
            screen.query_one(Static).update("new " + type(screen).__name__.lower(), layout=False)
        while not (beneath._dirty_widgets and above._dirty_widgets):
            await asyncio.sleep(0)
        assert shown(beneath) == ""
        painted = shown(above)
        assert "new above" in painted
        assert ("new beneath" in painted) == shows_through
