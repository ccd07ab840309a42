"""Lines of which only those that have changed are painted: they look as a Static's, and can be selected as its."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.strip import Strip
from textual.widgets import Static

from tests.kit.at_rest import until
from tuiapp.widgets.text_view import TextView

COUNT, HEIGHT = 300, 20
LINES = [Content(f"line {number}") for number in range(COUNT)]


class _Counted(TextView):
    def __init__(self, *lines: Content) -> None:
        super().__init__(*lines)
        self.rendered: list[int] = []

    def render_line(self, y: int) -> Strip:
        self.rendered.append(y)
        return super().render_line(y)


class _Page(App[None]):
    def __init__(self, lines: Sequence[Content]) -> None:
        super().__init__()
        self.lines, self.static = _Counted(*lines), Static(Content("\n").join(lines), markup=False)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield self.lines
            yield self.static


def changed(lines: Sequence[Content], *places: int) -> list[Content]:
    return [Content("changed") if place in places else line for place, line in enumerate(lines)]


async def test_only_changed_lines_in_sight_are_rendered() -> None:
    app = _Page(LINES)
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        app.lines.update(changed(LINES, 0))
        await until(pilot, lambda: len(app.lines.rendered) >= HEIGHT)
        assert max(app.lines.rendered) < HEIGHT
        app.lines.update(LINES)
        await pilot.pause()
        app.lines.rendered.clear()
        app.lines.update(changed(LINES, 3, 7, 200))
        await pilot.pause()
        assert app.lines.rendered == [3, 7]
        app.lines.update(changed(LINES, 3, 7, 200))
        await pilot.pause()
        assert app.lines.rendered == [3, 7]
        app.query_one(VerticalScroll).scroll_to(y=195, animate=False)
        await until(pilot, lambda: 200 in app.lines.rendered)
        assert app.lines.render_line(200).text == "changed"


async def test_selected_lines_are_copied_and_marked() -> None:
    app = _Page(LINES[:5])
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await pilot.pause()
        before = app.lines.render_line(2)
        await pilot.mouse_down(app.lines, offset=(2, 1))
        await pilot.hover(app.lines, offset=(4, 2))
        await pilot.mouse_up(app.lines, offset=(4, 2))
        await until(pilot, lambda: bool(app.screen.get_selected_text()))
        assert app.screen.get_selected_text() == "ne 1\nline "
        assert app.lines.render_line(2).text == before.text
        assert [one.style for one in app.lines.render_line(2)] != [one.style for one in before]
