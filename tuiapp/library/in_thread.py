"""Reads in a thread what may be on a slow disk, or on a file server that is down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
    """Calls a function in a daemon thread, which never keeps the program from exiting.

    What writes must be finished first: for that there is `asyncio.to_thread`.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def call() -> None:
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, name="read", daemon=True).start()
    return future
