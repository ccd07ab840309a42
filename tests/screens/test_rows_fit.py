"""Rows of ranks and of the log in the room there is: names whole, words whole, the newest line in sight."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from tests.kit.run_app import until
from tuiapp.trainers.state.run_state import LogEntry
from tuiapp.widgets.log_view import LogRows, _wrap


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
