"""Lines of which only those that have changed are painted: they look as a Static's, and can be selected as its."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.style import Style
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


async def test_it_is_as_high_as_its_lines() -> None:
    app = _Page(LINES[:3])
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        await until(pilot, lambda: app.lines.size.height == 3)
        for count in (9, 2, 5):
            app.lines.update(LINES[:count])
            await until(pilot, lambda count=count: app.lines.size.height == count)  # type: ignore[misc]
            assert str(app.lines.render()) == "\n".join(f"line {number}" for number in range(count))
        assert app.static.region.y == app.lines.region.y + 5


STYLED = [
    Content.assemble(
        "plain ", ("bold", "bold"), (" muted", "$text-muted"), (" hot", "bold #D55E00 on $foreground 12%")
    ),
    Content(""),
    Content("日本語 and more than there is room for"),
    Content.styled("reversed", "reverse"),
]


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_they_look_as_those_of_a_static(theme: str) -> None:
    app = _Page(STYLED)
    async with app.run_test(size=(24, HEIGHT)) as pilot:
        app.theme = theme
        app.static.styles.text_wrap, app.static.styles.text_overflow = "nowrap", "ellipsis"
        await pilot.pause()
        drawn, others = (each.render_lines(each.size.region) for each in (app.lines, app.static))
        assert len(drawn) == len(STYLED)
        assert [one.text for one in drawn] == [one.text for one in others]
        assert [*map(looks, drawn)] == [*map(looks, others)]


def looks(strip: Strip) -> list[tuple[str, Style | None]]:
    """Its parts without what is clickable or selectable."""
    return [(one.text, one.style.clear_meta_and_links() if one.style else None) for one in strip]


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
