"""F1: the handbook's page of where one is, its contents, its search, its links."""

from __future__ import annotations

import pytest
from textual.widgets import Input, Markdown, OptionList

from tests.kit import histories as h
from tests.kit.run_app import until
from tests.kit.stage import Stage, folded, run_screen
from tuiapp.library import manual
from tuiapp.screens.manual import ManualScreen

pytestmark = pytest.mark.nightly


def listed(app: Stage) -> list[str]:
    return [str(option.prompt) for option in app.screen.query_one(OptionList).options]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_page_of_where_one_is(size: tuple[int, int]) -> None:
    screen = run_screen(h.running())
    app = Stage(screen)
    async with app.run_test(size=size) as pilot:
        await folded(pilot, screen)
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, ManualScreen) and bool(app.screen.query_one(Markdown).source))
        assert app.screen.query_one(Markdown).source == manual.read_page("run")
        # All pages, and of this one its sections.
        await until(pilot, lambda: len(listed(app)) > len(manual.TOPICS))
        assert "  All metrics at once" in listed(app)
        await pilot.press("f1")
        await until(pilot, lambda: app.screen is screen)


async def test_a_search_opens_the_section() -> None:
    app = Stage(preset="quickstart")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, ManualScreen) and bool(app.screen.query_one(Markdown).source))
        await pilot.press("slash", *"reaper lost")
        await until(pilot, lambda: "  When something dies" in listed(app))
        contents = app.screen.query_one(OptionList)
        contents.highlighted = listed(app).index("  When something dies")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.query_one(Markdown).source == manual.read_page("checkpoints"))
        await until(pilot, lambda: app.screen.query_one("#page").scroll_y > 0)
        # Escape clears the search first.
        await pilot.press("escape")
        await until(pilot, lambda: app.screen.query_one(Input).value == "")
        assert isinstance(app.screen, ManualScreen)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ManualScreen))


async def test_a_link_opens_its_page() -> None:
    app = Stage(preset="quickstart")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, ManualScreen) and bool(app.screen.query_one(Markdown).source))
        page = app.screen.query_one(Markdown)
        page.post_message(Markdown.LinkClicked(page, "backends.md#environments"))
        await until(pilot, lambda: page.source == manual.read_page("backends"))
        await until(pilot, lambda: app.screen.query_one("#page").scroll_y > 0)
        page.post_message(Markdown.LinkClicked(page, "../../tuiapp/examples/keras_fit.py"))
        await until(pilot, lambda: any("Not a page" in note.message for note in app._notifications))
