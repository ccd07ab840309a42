"""The list of runs, polled in a thread: a directory on a slow disk must not delay keys."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from trainers.contract.summary import RunInfo
from tuiapp.feeds.polling import PollingThread
from tuiapp.library.run_index import RunIndex

POLL_S = 1.0


class Listing(NamedTuple):
    infos: list[RunInfo]  # newest first
    problem: str = ""  # why they cannot be listed; "" if they can


class RunsFeed(PollingThread):
    def __init__(self, runs_dir: Path, poll_s: float = POLL_S) -> None:
        super().__init__("runs-feed")
        self._index = RunIndex(runs_dir)
        self._poll_s = poll_s
        self._fresh: Listing | None = None

    def take(self) -> Listing | None:
        """Returns the newest list not taken yet; None when nothing changed."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def _poll(self) -> Generator[float, None, None]:
        before: Listing | None = None
        while True:
            found = Listing(self._index.scan(), self._index.problem)
            if found != before:
                self._fresh = before = found
            yield self._poll_s
