"""Has tests wait until an app has come to rest, or until something holds.

Textual's own pilot takes a process that used little processor time for one that has nothing left to do. On a busy
machine it has just not had its turn: a key is then still on its way when the test looks for what came of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from textual.app import App
from textual.message_pump import MessagePump
from textual.pilot import Pilot

REST_S = 10.0
"""An app that does not rest, because it waits for the test or its timers leave it no time, is looked at after that."""

DEADLINE_S = 60.0
"""What a loaded machine may take for what takes a moment."""

TURNS = 8
"""Of the event loop, for which an app must rest: what is handed from task to task is nowhere for a turn or two."""


def is_at_rest(app: App[Any]) -> bool:
    """Whether all messages have been dealt with, all keys have been handed on, and all is painted.

    What a thread, a worker or a timer has still to bring is not waited for: a test says itself what that is.
    """
    if app._exit or not app._screen_stack:
        return True
    keys = getattr(app, "_keys", None)
    if keys is not None and (keys._busy is not None or keys._waiting):
        return False
    screen = app.screen
    unpainted = screen._layout_required or screen._repaint_required or screen._dirty_widgets or screen._callbacks
    return not unpainted and all(_waits(pump) for pump in (app, *app._registry))


async def come_to_rest(app: App[Any]) -> None:
    """Wait until an app rests."""
    deadline = time.monotonic() + REST_S
    rested = 0
    while rested < TURNS and time.monotonic() < deadline and not app._exception:
        if is_at_rest(app):
            rested += 1
            await asyncio.sleep(0)
        else:
            rested = 0
            await asyncio.sleep(0.001)


async def until(pilot: Pilot[Any], is_so: Callable[[], bool]) -> None:
    """Wait until something holds, and what came with it has been dealt with."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        await pilot.pause(0.01)
    await come_to_rest(pilot.app)


def make_pilots_patient(patch: pytest.MonkeyPatch) -> None:
    """Have a pilot wait for rest: after each key, and where it waits for nothing else."""
    press, pause = Pilot.press, Pilot.pause

    async def give_way(*_: float) -> None:
        await asyncio.sleep(0)

    async def press_and_rest(self: Pilot[Any], *keys: str) -> None:
        for key in keys:
            await press(self, key)
            await come_to_rest(self.app)

    async def pause_and_rest(self: Pilot[Any], delay: float | None = None) -> None:
        await pause(self, delay)
        if delay is None:
            await come_to_rest(self.app)

    # After each key Textual waits twice until the process is idle, up to two seconds on a busy machine; that says less
    # than rest does. A pause keeps that wait: it is also time for timers.
    patch.setattr("textual.app.wait_for_idle", give_way)
    patch.setattr(Pilot, "press", press_and_rest)
    patch.setattr(Pilot, "pause", pause_and_rest)


def _waits(pump: MessagePump) -> bool:
    """Whether a pump has nothing to do: its task, if it has one, waits for the next message."""
    if not pump._running or pump._closing or pump._closed:
        return True
    queue: Any = pump._message_queue
    waiting = any(not waiter.done() for waiter in queue.ready_event._waiters)
    return waiting and queue.empty() and not pump._next_callbacks
