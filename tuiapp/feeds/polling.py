"""A thread that looks again and again: a directory on a slow disk must not delay keys."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing


class PollingThread:
    """Calls `_poll` in a daemon thread, which never keeps the program from exiting."""

    def __init__(self, name: str) -> None:
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._keep_polling, name=name, daemon=True)

    def _poll(self) -> Generator[float, None, None]:
        """Looks, and yields the seconds until the next look; is closed where it has yielded."""
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
