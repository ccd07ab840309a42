"""Keys that arrive faster than they can be dealt with."""

from __future__ import annotations

import time
from typing import Any

import pytest
from textual.events import Key, MouseDown, MouseUp, Paste
from textual.pilot import Pilot
from textual.widgets import Input

from tests.kit.configure_app import Start, field, screen, until


def type_at_once(pilot: Pilot[Any], *keys: str) -> None:
    """Keys as they come from a terminal that does not say that they are a paste."""
    for key in keys:
        pilot.app.post_message(Key(key, key if len(key) == 1 else None))


@pytest.mark.nightly
async def test_thousands_of_characters_are_typed_into_a_field_together(start: Start) -> None:
    async with start() as pilot:
        box = field(pilot, "epochs").query_one(Input)
        box.focus()
        await until(pilot, lambda: box.has_focus)
        shown: list[str] = []
        screen(pilot).watch(box, "value", lambda value: shown.append(value), init=False)
        text = "".join(str(number % 10) for number in range(5000))
        type_at_once(pilot, *text)
        # What stood there was selected: it gives way to the first one.
        await until(pilot, lambda: len(box.value) == len(text))
        assert box.value == text
        assert len(shown) < len(text) / 10


@pytest.mark.nightly
async def test_other_keys_and_pastes_among_them_keep_their_places(start: Start) -> None:
    async with start() as pilot:
        first, second = (field(pilot, key).query_one(Input) for key in ("epochs", "max_steps"))
        first.focus()
        await until(pilot, lambda: first.has_focus)
        type_at_once(pilot, *"12345", "backspace", "left", *"67")
        pilot.app.post_message(Paste("890"))
        type_at_once(pilot, *"11", "tab", *"42")
        await until(pilot, lambda: second.value == "42")
        assert first.value == "12367890114"


@pytest.mark.nightly
async def test_a_press_of_the_mouse_waits_for_the_screen_and_keys_wait_for_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Keys wait for the test: the app does not rest before they may go on.
    monkeypatch.setattr("tests.kit.at_rest.REST_S", 0.1)
    async with start() as pilot:
        first, second = (field(pilot, key).query_one(Input) for key in ("epochs", "max_steps"))
        first.focus()
        await until(pilot, lambda: first.has_focus)
        screen(pilot).launching = True
        x, y = second.content_region.offset
        for kind in (MouseDown, MouseUp):
            pilot.app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, x, y))
        type_at_once(pilot, "end", "ctrl+u", "4", "2")
        await until(pilot, lambda: len(pilot.app._keys._waiting) == 6)  # type: ignore[attr-defined]
        assert first.has_focus
        screen(pilot).launching = False
        await until(pilot, lambda: second.value == "42")
        assert second.has_focus
        assert first.value != "42"


@pytest.mark.nightly
async def test_keys_typed_while_a_run_starts_wait_for_it_however_long(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuiapp.terminal.key_queue.READY_PATIENCE_S", 0.1)
    async with start() as pilot:
        form, box = screen(pilot), field(pilot, "epochs").query_one(Input)
        box.focus()
        await until(pilot, lambda: box.has_focus)
        form.launching = True
        began = time.monotonic()
        type_at_once(pilot, "end", "ctrl+u", "4", "2")
        await until(pilot, lambda: time.monotonic() > began + 0.5)
        assert box.value != "42"
        form.launching = False
        await until(pilot, lambda: box.value == "42")


@pytest.mark.nightly
async def test_what_is_typed_after_many_tabs_goes_where_they_lead(start: Start) -> None:
    async with start() as pilot:
        form = screen(pilot)
        box = field(pilot, "epochs").query_one(Input)
        box.focus()
        await until(pilot, lambda: box.has_focus)
        seen: list[object] = []
        form.watch(form, "focused", lambda focused: seen.append(focused), init=False)
        type_at_once(pilot, *["tab"] * (1 + 7 * len(form.focus_chain)), "shift+tab", *"42")
        await until(pilot, lambda: box.value == "42")
        assert len(seen) < 10


@pytest.mark.nightly
async def test_leaving_overtakes_what_waits_too_long(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.terminal.key_queue.LEAVE_PATIENCE_S", 0.0)
    async with start() as pilot:
        box = field(pilot, "epochs").query_one(Input)
        box.focus()
        await until(pilot, lambda: box.has_focus)
        moved: list[object] = []
        screen(pilot).watch(screen(pilot), "focused", lambda focused: moved.append(focused), init=False)
        type_at_once(pilot, *["tab", "1"] * 500, "ctrl+q")
        await until(pilot, lambda: pilot.app._exit)
        assert len(moved) < 400
