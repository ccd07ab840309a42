"""Each fails when Textual no longer needs what `tuiapp.terminal` mends: then that can go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from textual import _time
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.dom import DOMNode
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widgets import Input, Label, Static
from textual.widgets._toast import Toast, ToastRack

from tests.kit.run_app import until
from tests.unit.terminal.test_reliable_timers import late_time


class Form(Screen[None]):
    CSS = "Vertical:focus-within { border: solid red; }"

    def compose(self) -> ComposeResult:
        with Vertical():
            for _ in range(5):
                yield Input()


async def test_focus_within() -> None:
    """Each field is styled anew when the focus moves, not only what it leaves and enters."""
    app = App[None]()
    async with app.run_test() as pilot:
        await app.push_screen(Form())
        await pilot.pause()
        styled: list[DOMNode] = []
        update_nodes = app.stylesheet.update_nodes

        def note_and_update(nodes: Iterable[DOMNode], animate: bool = False) -> None:
            styled.extend(nodes := list(nodes))
            update_nodes(nodes, animate)

        app.stylesheet.update_nodes = note_and_update  # type: ignore[method-assign]
        app.screen.query(Input).last().focus()
        await pilot.pause()
        assert len({one for one in styled if isinstance(one, Input)}) == 5


async def test_notices_on_top() -> None:
    """A notice of a screen beneath stays there while the one above shows it."""
    app = App[None]()
    async with app.run_test(notifications=True) as pilot:
        beneath = app.screen
        app.notify("once")
        await until(pilot, lambda: len(beneath.query(Toast)) == 1)
        await app.push_screen(ModalScreen[None]())
        await until(pilot, lambda: len(app.screen.query(Toast)) == 1)
        assert beneath.query_one(ToastRack).display


class Columns(Screen[None]):
    CSS = "Static { width: 1fr; height: 100%; } VerticalScroll { scrollbar-size: 0 0; }"

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static("left")
            with VerticalScroll():
                for number in range(40):
                    yield Label(f"line {number}")
            yield Static("right")


async def test_reliable_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer for one time is forgotten if the process was held up while it began."""
    app = App[None]()
    async with app.run_test() as pilot:
        await pilot.pause()
        done: list[int] = []
        monkeypatch.setattr(_time, "get_time", late_time)
        timer = app.set_timer(0.001, lambda: done.append(1))
        assert timer._task
        await asyncio.wait([timer._task], timeout=10)
        monkeypatch.undo()
        assert (timer._task.done(), done) == (True, [])


async def test_exact_compositor_renders_what_is_due() -> None:
    """What lies between two changes is rendered, too."""
    app = App[None]()
    async with app.run_test() as pilot:
        await app.push_screen(Columns())
        await pilot.pause()
        between, rendered = app.screen.query_one(VerticalScroll), list[Region]()

        def render_lines(crop: Region) -> list[Strip]:
            rendered.append(crop)
            return type(between).render_lines(between, crop)

        between.render_lines = render_lines  # type: ignore[method-assign]
        app.screen._compositor._dirty_regions = {static.region for static in app.screen.query(Static).exclude("Label")}
        app.screen._compositor.render_partial_update()
        assert rendered


async def test_changed_cells() -> None:
    """A widget's line is written whole where one of its cells has changed."""
    app = App[None]()
    async with app.run_test() as pilot:
        await app.push_screen(Columns())
        await pilot.pause()
        left = app.screen.query(Static).first()
        for text in ("lift", "loft"):
            left.update(text)
            app.screen._compositor.update_widgets({left})
            update = app.screen._compositor.render_partial_update()
            assert update
            written = update.render_segments(app.console)
        assert "loft" in written
