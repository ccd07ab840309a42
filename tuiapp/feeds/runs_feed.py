"""The list of runs, polled in a thread: a directory on a slow disk must not delay keys."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from tuiapp.library.in_thread import PollingThread
from tuiapp.library.liveness import keep_searched
from tuiapp.library.run_index import POLL_S, RunIndex
from tuiapp.trainers.experiments.queue import start_keeper
from tuiapp.trainers.state.summary import RunInfo

SHOW_S = 0.2  # between two lists while the directory is read


class Listing(NamedTuple):
    infos: list[RunInfo]  # newest first
    problem: str = ""  # why they cannot be listed; "" if they can
    complete: bool = True  # False while runs are read for the first time


class RunsFeed(PollingThread):
    measures = False
    """Whether the list says what runs take on the disk, which takes longer than all else."""

    def __init__(self, runs_dir: Path, poll_s: float = POLL_S) -> None:
        super().__init__("runs-feed")
        self._runs_dir = runs_dir
        self._index = RunIndex(runs_dir)
        self._poll_s = poll_s
        self._fresh: Listing | None = None
        self._before: Listing | None = None

    def take(self) -> Listing | None:
        """Returns the newest list not taken yet; None when nothing changed."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def _poll(self) -> Generator[float, None, None]:
        shown_at, complete = time.monotonic(), False
        while True:
            for _ in self._look(complete):
                if time.monotonic() - shown_at > SHOW_S:
                    self._show(complete=complete)
                    yield 0.0
                    shown_at = time.monotonic()
            self._show(complete=True)
            if not complete:
                # These look into each run, which takes minutes in a slow directory.
                start_keeper(self._runs_dir)
                keep_searched(self._runs_dir)
            complete = True
            yield self._poll_s

    def _look(self, complete: bool) -> Iterator[None]:
        """Yields after each run that is looked at, the directories of all only once there is a list."""
        yield from self._index.scan()
        if complete and self.measures:
            yield from self._index.measure()

    def _show(self, *, complete: bool) -> None:
        listing = Listing(self._index.infos, self._index.problem, complete)
        if listing != self._before:
            self._fresh = self._before = listing
