"""Handles keys that arrive together one after the other.

A slow connection, a paste or a busy machine delivers several keys at once. Textual gives each to the widget focused at
that moment, before the earlier ones are handled: what is typed after Tab would end in the previous field, and what is
typed after a key that opens a question would be lost.

Characters that wait for a text field are typed into it together: a long text pasted without bracketed paste would
otherwise be validated and drawn for each of them. A repeated key that only moves the focus moves it as far at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import takewhile
from typing import Any

from textual import events
from textual.app import App, ScreenStackError
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from tuiapp.terminal.slow_disk import is_waiting

PAINT_S = 0.03
"""From a key's handling until it is painted: Textual paints 60 times a second."""

PATIENCE_S = 1.0
"""After that the next key is handled, even if the previous one still runs."""

READY_PATIENCE_S = 3.0
"""After that a key goes to a screen that is not ready: it may be the one to leave by."""

MAX_PASTED = 4096
"""Most characters of a paste: the longest value is a path, and drawing a whole log would take most of a minute."""

LEAVE_PATIENCE_S = 0.5
"""How long the key that quits waits for earlier ones, which are then dropped."""

QUIT = ("quit", "app.quit")
"""The quit action in bindings."""


class KeyQueue:
    """Delivers a key or mouse press once the previous key is handled and the screen is ready."""

    def __init__(self, app: App[Any], deliver: Callable[[events.Event], Coroutine[Any, Any, None]]) -> None:
        self._app, self._deliver = app, deliver
        self._waiting: deque[events.Event] = deque()
        self._busy: asyncio.Task[None] | None = None
        self._answered_at = 0.0
        self._last = ""
        self._leaving: asyncio.Task[None] | None = None

    @property
    def is_answering(self) -> bool:
        """Whether a key is being handled, or its result is being painted."""
        return self._busy is not None or time.monotonic() - self._answered_at < PAINT_S

    @property
    def rest_s(self) -> float:
        """Seconds since a key was last handled."""
        return 0.0 if self._busy is not None else time.monotonic() - self._answered_at

    async def put(self, event: events.Event) -> None:
        """Handles a key or a paste, now or in its turn; none once the program ends."""
        if not self._app.screen_stack:
            return
        if isinstance(event, events.Paste):
            event.text = event.text[:MAX_PASTED]
        if self._busy is not None:
            self._waiting.append(event)
            if self._leaves(event):
                asyncio.get_running_loop().call_later(LEAVE_PATIENCE_S, self._overtake, event)
            return
        if self._is_ready():
            await self._hand_on(event)
        else:
            self._waiting.append(event)
        self._busy = asyncio.create_task(self._advance())

    async def put_press(self, event: events.MouseEvent) -> None:
        """Handles a button's press or release at once, or in its turn while keys or the screen wait."""
        if not self._app.screen_stack:
            return
        if self._is_ready() and not self._waiting:
            await self._deliver(event)
            return
        self._waiting.append(event)
        if self._busy is None:
            self._busy = asyncio.create_task(self._advance())

    async def _advance(self) -> None:
        try:
            await self._settle()
            while self._waiting:
                await self._until_ready()
                if not self._move_focus():
                    await self._hand_on(self._next())
                await self._settle()
        except ScreenStackError:
            # The program ends: no screen is left to take what waits.
            self._waiting.clear()
        finally:
            self._busy = None
            self._answered_at = time.monotonic()

    async def _hand_on(self, event: events.Event) -> None:
        self._last = event.key if isinstance(event, events.Key) else ""
        await self._deliver(event)

    def _move_focus(self) -> bool:
        """Applies a repeated key's focus moves at once, after the first: that may close the focused menu."""
        repeats = takewhile(lambda event: isinstance(event, events.Key) and event.key == self._last, self._waiting)
        times = sum(1 for _ in repeats)
        moves = move_focus(self._app.screen, self._last, times) if times > 1 else 0
        for _ in range(moves):
            self._waiting.popleft()
        return moves > 0

    def _leaves(self, event: events.Event) -> bool:
        if not isinstance(event, events.Key) or event.is_printable:
            return False
        active = self._app.screen.active_bindings.get(event.key)
        return active is not None and active.binding.priority and active.binding.action in QUIT

    def _overtake(self, event: events.Event) -> None:
        if event in self._waiting:
            self._waiting.clear()
            self._leaving = asyncio.create_task(self._deliver(event))

    def _next(self) -> events.Event:
        """Returns the next event: a key, a paste, or all characters up to the next other key as a paste."""
        first = self._waiting.popleft()
        box = self._app.focused
        if not self._waiting or not isinstance(box, Input) or box.restrict or box.type != "text":
            return first
        if not (character := _taken(box, first)) or not _taken(box, self._waiting[0]):
            return first
        typed = [character]
        while self._waiting and (character := _taken(box, self._waiting[0])):
            typed.append(character)
            self._waiting.popleft()
        text = "".join(typed)
        if box.max_length:
            # An overlong paste would be refused whole. A full field is given one character to refuse.
            text = text[: max(1, box.max_length - len(box.value) + len(box.selected_text))]
        return events.Paste(text)

    async def _settle(self) -> None:
        """Waits until a key and all it triggered are handled, from the focused widget to the app."""
        for _ in range(2):
            for node in (self._app.focused or self._app.screen).ancestors_with_self:
                passed = asyncio.Event()
                if not node.is_running or not node.call_later(passed.set):
                    continue
                try:
                    await asyncio.wait_for(passed.wait(), PATIENCE_S)
                except TimeoutError:
                    return

    def _is_ready(self) -> bool:
        return self._app.screen.is_mounted and not self._is_launching and not is_waiting()

    @property
    def _is_launching(self) -> bool:
        """Whether what is typed is for the screen of a run that starts."""
        return getattr(self._app.screen, "launching", False)

    async def _until_ready(self) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + READY_PATIENCE_S
        while not self._is_ready() and now() < deadline:
            if self._is_launching:
                # It ends by itself.
                deadline = now() + READY_PATIENCE_S
            await asyncio.sleep(0.005)


def _taken(box: Input, event: events.Event) -> str:
    """Returns the character that a key types into a field; "" for a key that it leaves to the screen."""
    if not isinstance(event, events.Key) or not event.is_printable:
        return ""
    return (event.character or "") if box.check_consume_key(event.key, event.character) else ""


STEPS = {"app.focus_next": 1, "app.focus_previous": -1}
"""Action → how far it moves the focus."""


def move_focus(screen: Screen[Any], key: str, times: int) -> int:
    """Moves the focus as `times` presses of a key do, painting only the end; returns how many presses only moved it."""
    chain, start = screen.focus_chain, screen.focused
    if start not in chain:
        return 0
    steps = dict[Widget, int]()
    at, moves = chain.index(start), 0
    try:
        while moves < times:
            widget = chain[at]
            if widget not in steps:
                # The active bindings depend on the focus.
                screen.set_reactive(Screen.focused, widget)
                active = screen.active_bindings.get(key)
                steps[widget] = STEPS.get(active.binding.action, 0) if active else 0
            if not steps[widget]:
                break
            at = (at + steps[widget]) % len(chain)
            moves += 1
    finally:
        screen.set_reactive(Screen.focused, start)
    screen.set_focus(chain[at])
    return moves
