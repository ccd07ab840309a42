"""Calls back when a file descriptor becomes readable: what a supervisor, and a node's agent, wait by."""

from __future__ import annotations

import selectors
from collections.abc import Callable


class Reactor:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def forget(self, fd: int) -> None:
        """Ends `watch`; does nothing if the descriptor is not watched."""
        if fd >= 0 and fd in self._selector.get_map():
            self._selector.unregister(fd)

    def wait(self, seconds: float) -> None:
        """Waits until a descriptor is readable, at most so long, and calls what watches those that are."""
        for key, _ in self._selector.select(seconds):
            key.data()
