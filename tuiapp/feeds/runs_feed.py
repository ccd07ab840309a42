"""The list of runs, polled in a thread: a directory on a slow disk must not delay keys."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from trainers.contract.summary import RunInfo
from tuiapp.library.run_index import RunIndex

POLL_S = 1.0


class Listing(NamedTuple):
    infos: list[RunInfo]  # newest first
    problem: str = ""  # why they cannot be listed; "" if they can


class RunsFeed:
    def __init__(self, runs_dir: Path, poll_s: float = POLL_S) -> None:
        self._index = RunIndex(runs_dir)
        self._poll_s = poll_s
        self._wake = threading.Event()
        self._closed = False
        self._fresh: Listing | None = None
        # A daemon never keeps the program from exiting.
        self._thread = threading.Thread(target=self._look, name="runs-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> Listing | None:
        """Returns the newest list not taken yet; None when nothing changed."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def look_now(self) -> None:
        self._wake.set()

    def close(self) -> None:
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
