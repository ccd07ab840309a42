"""Answers a key at once although what it asks for may be on a slow disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any, TypeVar

from textual.app import App

T = TypeVar("T")

SOON_S = 0.05
"""How long a key waits for the disk."""

_waiting = 0


def is_waiting() -> bool:
    """Whether a key waits for the disk: the next one is for what it opens."""
    return _waiting > 0


async def soon(call: Future[T] | Awaitable[T]) -> asyncio.Future[T]:
    """Returns a call in a thread once it is done, or after `SOON_S`."""
    global _waiting
    future = asyncio.ensure_future(asyncio.wrap_future(call) if isinstance(call, Future) else call)
    _waiting += 1
    try:
        await asyncio.wait([future], timeout=SOON_S)
    finally:
        _waiting -= 1
    return future


async def patiently(app: App[Any], call: Future[T] | Awaitable[T]) -> T:
    """Awaits a call in a thread; notifies the user if it takes longer than `SOON_S`."""
    future = await soon(call)
    if not future.done():
        app.notify("Waiting for the runs directory, which answers slowly …")
    return await future
