"""What runs there are, looked for again and again in a thread: a directory on a slow disk must not hold up the keys."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple, Protocol

from trainers.contract.summary import RunInfo
from tuiapp.library.run_index import RunIndex

POLL_S = 1.0
"""How often the directory is looked at."""


class Listing(NamedTuple):
    """All runs at a moment."""

    infos: list[RunInfo]
    """Newest first."""
    problem: str = ""
    """Why they cannot be listed; "" when they can."""


class RunLister(Protocol):
    """A source of lists that never makes its taker wait."""

    def start(self) -> None:
        """Begin to look."""
        ...

    def take(self) -> Listing | None:
        """The newest list that was not taken yet; None when nothing changed."""
        ...

    def look_now(self) -> None:
        """Do not wait for the next look."""
        ...

    def close(self) -> None:
        """Stop looking; does not wait for it."""
        ...


class RunsFeed:
    """Lists the runs of a directory.

    Args:
        runs_dir: The directory; it need not exist.
        poll_s: How often to look.
    """

    def __init__(self, runs_dir: Path, poll_s: float = POLL_S) -> None:
        self._index = RunIndex(runs_dir)
        self._poll_s = poll_s
        self._wake = threading.Event()
        self._closed = False
        self._fresh: Listing | None = None
        # A daemon: it must never keep the program from exiting.
        self._thread = threading.Thread(target=self._look, name="runs-feed", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def take(self) -> Listing | None:
        """The newest list that was not taken yet; None when nothing changed."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def look_now(self) -> None:
        """Do not wait for the next look."""
        self._wake.set()

    def close(self) -> None:
        """Tell the thread to end."""
        self._closed = True
        self._wake.set()

    def _look(self) -> None:
        before: Listing | None = None
        while not self._closed:
            found = Listing(self._index.scan(), self._index.problem)
            if found != before:
                self._fresh = before = found
            self._wake.wait(self._poll_s)
            self._wake.clear()
