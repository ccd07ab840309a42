"""The log searched and filtered; rows of ranks and of the log in the room there is."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from tests.kit import histories as h
from tests.kit.run_app import LARGE, RunApp, settled, until
from tests.kit.shown import shown_lines
from tuiapp.trainers.contract.events import AnyEvent, LogLine
from tuiapp.trainers.state.run_state import LogEntry
from tuiapp.widgets import log_view
from tuiapp.widgets.log_view import LogRows, LogView, _wrap


def events() -> list[AnyEvent]:
    lines: list[AnyEvent] = [
        LogLine(rank=number % 2, stream="stderr" if number % 3 == 0 else "stdout", text=text, **h.at(3 + number / 100))
        for number, text in enumerate(["needle" if n % 20 == 5 else f"line {n}" for n in range(100)])
    ]
    return [*h.running(), *lines]


@pytest.mark.nightly
async def test_next_and_previous_among_all_lines() -> None:
    app = RunApp(events())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        log = app.run_screen.query_one(LogView)
        rows = log.query_one(LogRows)
        await pilot.press("slash", *"NEEDLE", "enter")
        assert len(shown_lines(log)) == 5
        await pilot.press("n")
        assert len(shown_lines(log)) > 100
        assert not log.follow
        assert "1 of 5" in log._place or "of 5" in log._place
        first = rows._found
        await pilot.press("n")
        assert rows._found != first
        await pilot.press("N")
        assert rows._found == first
        await pilot.press("escape")
        assert (rows.needle, log._place) == ("", "")
        assert app.screen is app.run_screen


async def test_one_stream_alone() -> None:
    app = RunApp(events())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        log = app.run_screen.query_one(LogView)
        everything = len(shown_lines(log))
        await pilot.press("l")
        assert len(shown_lines(log)) == 66
        await pilot.press("l")
        assert len(shown_lines(log)) == 34 + 2
        await pilot.press("l")
        assert all("line" not in line for line in shown_lines(log))
        await pilot.press("l")
        assert len(shown_lines(log)) == everything


async def test_lines_that_no_longer_fit_are_followed_as_soon_as_there_is_a_scroll_bar() -> None:
    app = RunApp(h.beginning(1))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        rows = app.run_screen.query_one(LogRows)
        assert not rows.show_vertical_scrollbar
        rows.add(list(app.run_screen.state.log) * 20)
        rows.show_vertical_scrollbar = True
        assert rows.scroll_offset.y == rows.max_scroll_y > 0
        assert rows.follow


@pytest.mark.nightly
async def test_where_one_reads_stays_while_the_oldest_lines_go(monkeypatch: pytest.MonkeyPatch) -> None:
    app = RunApp(events())
    async with app.run_test(size=(160, 50)) as pilot:
        await settled(pilot, app)
        rows = app.run_screen.query_one(LogRows)
        rows.add(list(app.run_screen.state.log) * 3)
        monkeypatch.setattr(log_view, "MAX_ROWS", len(rows._rows))
        rows.follow = False
        rows.scroll_to(y=40, animate=False, immediate=True, force=True)
        rows.add(list(app.run_screen.state.log)[:10])
        assert rows.scroll_offset.y == 30


def test_the_log_is_cut_between_words() -> None:
    text = "rank 1 failed at step 72: RuntimeError: CUDA error: an illegal memory access was encountered"
    parts = _wrap(text, 57)
    assert parts == [text[:55], text[55:]]
    assert parts[0].endswith("an ")


@pytest.mark.parametrize("text", ["", "x" * 100, "word " * 30, "two  blanks " * 9, " " * 50, "日本 " * 20])
def test_nothing_of_a_line_is_lost(text: str) -> None:
    parts = _wrap(text, 20)
    assert "".join(parts) == text
    assert all(cell_len(part) <= 20 for part in parts)
    assert parts


class _Log(App[None]):
    def compose(self) -> ComposeResult:
        yield LogRows()


async def test_the_end_of_many_lines_that_come_at_once_is_in_sight() -> None:
    app = _Log()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        rows = app.query_one(LogRows)
        assert not rows.show_vertical_scrollbar
        rows.refill([LogEntry(float(n), 0, "stdout", f"line {n}") for n in range(100)])
        # Before any layout: nothing else need follow.
        assert rows.scroll_offset.y == rows.max_scroll_y == 76
        assert rows.follow
        await until(pilot, lambda: rows.show_vertical_scrollbar and rows.vertical_scrollbar.position == 76)


async def test_a_line_that_is_logged_lays_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    app = _Log()
    async with app.run_test(size=(80, 24)) as pilot:
        rows = app.query_one(LogRows)
        rows.refill([LogEntry(float(n), 0, "stdout", f"line {n}") for n in range(100)])
        await until(pilot, lambda: rows.show_vertical_scrollbar and rows.vertical_scrollbar.position == 76)
        await pilot.pause()
        laid_out: list[object] = []
        monkeypatch.setattr(app.screen, "_refresh_layout", lambda *args, **options: laid_out.append(args))
        rows.add([LogEntry(100.0, 0, "stdout", "line 100")])
        bar = rows.vertical_scrollbar
        await until(pilot, lambda: (bar.position, bar.window_virtual_size) == (77, 101))
        await pilot.pause()
        assert rows.render_line(23).text.rstrip().endswith("line 100")
        assert not laid_out
