"""Threads that read what may be on a slow disk, or on a file server that is down: once, or again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import closing
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


class PollingThread:
    """Calls `_poll` in a daemon thread, which never keeps the program from exiting."""

    def __init__(self, name: str) -> None:
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._keep_polling, name=name, daemon=True)

    def _poll(self) -> Generator[float, None, None]:
        """Looks, and yields the seconds until the next look; the generator is closed where it has yielded."""
        raise NotImplementedError

    def start(self) -> None:
        self._thread.start()

    def poll_now(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _keep_polling(self) -> None:
        with closing(self._poll()) as looks:
            for wait_s in looks:
                if wait_s:
                    self._wake.wait(wait_s)
                    self._wake.clear()
                if self._closed:
                    return
