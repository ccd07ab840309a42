"""Each fails when Textual no longer needs what `tuiapp.terminal` mends: then that can go."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widgets import Input
from textual.widgets._toast import Toast, ToastRack

from tests.kit.run_app import until


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
