"""A screen paints what has changed, all of it, beneath a dialog too, and renders nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import pyte
import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App, ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Label, Static

from tuiapp.terminal.exact_painting import ChangedCells, ExactCompositor, ExactPainting
from tuiapp.terminal.textual_fixes import CoveredScreenFix

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


def written(app: App[None], *updates: LayoutUpdate | ChopsUpdate | None, over: Iterable[Region] = ()) -> list[str]:
    """What updates write, line by line, with colours; the first one is blotted out in some places before the others."""
    terminal = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(terminal)
    for place, update in enumerate(updates):
        assert update
        stream.feed(update.render_segments(app.console))
        for region in over if not place else ():
            for y in region.line_range:
                stream.feed(f"\x1b[{y + 1};{region.x + 1}H{'?' * region.width}")
    return [str([terminal.buffer[y][x] for x in range(WIDTH)]) for y in range(HEIGHT)]


@pytest.mark.nightly
async def test_it_paints_all_that_is_due() -> None:
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
            whole = compositor.render_full_update()
            compositor._dirty_regions = due.copy()
            assert written(app, whole, compositor.render_partial_update(), over=due) == written(app, whole), due


LOOKS = [Style(), *(Style.parse(words) for words in ("red", "bold red", "red on blue", "on blue", "bold", "#112233"))]


def line(draw: random.Random) -> Strip:
    texts = [draw.choice(("step", " ", "12,345", "⡇⠁⠈", "日本")) for _ in range(8)]
    strip = Strip([Segment(text, draw.choice(LOOKS)) for text in texts])
    return strip.adjust_cell_length(WIDTH)


def test_only_cells_that_differ_are_written() -> None:
    """Whatever stood there, what is written makes it the new line."""
    draw, console = random.Random(3), Console(color_system="truecolor", force_terminal=True)
    compositor = ExactCompositor()
    terminal = pyte.Screen(WIDTH, 1)
    for _ in range(300):
        strip = line(draw)
        update = ChopsUpdate([{0: strip}], [(0, 0, WIDTH)], [[WIDTH]])
        pyte.Stream(terminal).feed(ChangedCells(update, compositor.painted).render_segments(console))
        whole = pyte.Screen(WIDTH, 1)
        pyte.Stream(whole).feed(ChangedCells(update, {}).render_segments(console))
        assert [*terminal.buffer[0].items()] == [*whole.buffer[0].items()]
    assert ChangedCells(update, compositor.painted).render_segments(console) == ""


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
