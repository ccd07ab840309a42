"""A screen paints what has changed, all of it, and renders nothing else."""

from __future__ import annotations

import random
from typing import Any

import pyte
import pytest
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.app import App, ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Label, Static

from tuiapp.terminal.exact_painting import ExactPainting

WIDTH, HEIGHT = 60, 20


class Crowded(ExactPainting[None]):
    """Docked, scrolled and overlapping widgets, one of them over all others."""

    CSS = """
    Crowded { layers: below above; }
    #top { dock: top; height: 1; background: blue; }
    .box { width: 1fr; height: 100%; border: round red; padding: 0 1; }
    #list { width: 2fr; height: 100%; }
    #over { layer: above; width: 20; height: 5; offset: 25 8; border: heavy green; background: black; }
    """

    def compose(self) -> ComposeResult:
        yield Label("at the top", id="top")
        with Horizontal():
            yield Static("left " * 40, classes="box")
            with VerticalScroll(id="list"):
                for number in range(40):
                    yield Label(f"line {number} with 日本語 in it")
            yield Static("right " * 40, classes="box")
        yield Static("over the others", id="over")


def painted(app: App[None], update: ChopsUpdate | None) -> list[str]:
    """What an update writes on an empty screen, line by line, with colours."""
    assert update
    screen = pyte.Screen(WIDTH, HEIGHT)
    pyte.Stream(screen).feed(update.render_segments(app.console))
    return [str([screen.buffer[y][x] for x in range(WIDTH)]) for y in range(HEIGHT)]


@pytest.mark.nightly
async def test_it_paints_what_textual_paints() -> None:
    draw = random.Random(7)
    app = App[None]()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        screen = Crowded()
        await app.push_screen(screen)
        screen.query_one("#list", VerticalScroll).scroll_to(y=3, animate=False)
        await pilot.pause()
        compositor = screen._compositor
        for _ in range(200):
            due = set()
            for _ in range(draw.randint(1, 6)):
                x, y = draw.randrange(WIDTH), draw.randrange(HEIGHT)
                due.add(Region(x, y, draw.randint(1, WIDTH - x), draw.randint(1, HEIGHT - y)))
            found = []
            for render in (Compositor.render_partial_update, type(compositor).render_partial_update):
                compositor._dirty_regions = due.copy()
                found.append(painted(app, render(compositor)))
            assert found[0] == found[1], due


async def test_what_lies_between_two_changes_is_not_rendered() -> None:
    app = App[None]()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        screen = Crowded()
        await app.push_screen(screen)
        await pilot.pause()
        rendered: list[Widget] = []
        for widget in screen.query(Widget):

            def render(crop: Region, widget: Widget = widget, lines: Any = widget.render_lines) -> list[Strip]:
                rendered.append(widget)
                return lines(crop)  # type: ignore[no-any-return]

            widget.render_lines = render  # type: ignore[method-assign]
        first, *_, last = screen.query(".box")
        screen._compositor._dirty_regions = {first.region, last.region}
        screen._compositor.render_partial_update()
        assert set(rendered) == {first, last}


@pytest.mark.parametrize("back", [False, True])
async def test_what_was_scrolled_before_a_layout_is_painted(back: bool) -> None:
    app = App[None]()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        screen = Crowded()
        await app.push_screen(screen)
        scrolled, compositor = screen.query_one("#list", VerticalScroll), screen._compositor
        # A scroll bar is told of its new place by a message.
        scrolled.styles.scrollbar_size_vertical = 0
        await pilot.pause()
        terminal = pyte.Screen(WIDTH, HEIGHT)

        def paint(update: LayoutUpdate | ChopsUpdate | None) -> list[str]:
            if update:
                pyte.Stream(terminal).feed(update.render_segments(app.console))
            return list(terminal.display)

        scrolled.scroll_y = 9
        compositor.reflow_visible(screen, app.size)
        before = paint(compositor.render_full_update())
        scrolled.scroll_y = 0 if back else 5
        if not back:
            assert compositor.full_map
        compositor.reflow(screen, app.size)
        after = paint(compositor.render_partial_update())
        assert after != before
        assert after == paint(compositor.render_full_update())
