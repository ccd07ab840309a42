"""The list of runs, polled in a thread: a directory on a slow disk must not delay keys."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from trainers.contract.rundir import RunDir
from trainers.experiments.queue import placed, start_keeper
from trainers.state.summary import RunInfo, summarise
from tuiapp.feeds.polling import PollingThread
from tuiapp.library.find import find_runs, unreadable
from tuiapp.library.liveness import keep_searched, keep_watched

POLL_S = 1.0
SHOW_S = 0.2  # between two lists while the directory is read

LIVE_SHARE = 0.04  # of a core, about, for reading live runs again
MOST_AGE_S = 5.0  # of what is known of a live run, however many there are

_Stamp: TypeAlias = tuple[int, ...]  # inode, size and change time of two files; zeros for one that is missing
_NOTHING = (0, 0, 0)


class _Known(NamedTuple):
    stamp: _Stamp
    info: RunInfo
    read_at: float
    took_s: float  # of processor time

    def is_fresh(self, stamp: _Stamp, pace: float) -> bool:
        """Whether it was read less than so many times as long ago as that took, if that is long."""
        rest_s = min(MOST_AGE_S, pace * self.took_s)
        named = stamp[3:] == self.stamp[3:]  # what the user says of it is seen at once
        return self.info.status == "running" and named and rest_s > POLL_S and time.monotonic() - self.read_at < rest_s


class RunIndex:
    """The runs of a directory, of which each scan reads those again that have changed.

    Live ones change all the time: the more there are, the less often each is read.
    """

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._known: dict[RunDir, _Known] = {}
        self._seen: dict[RunDir, _Known] = {}  # by the scan under way
        self.read = 0  # runs that the last scan had to read
        self.problem = ""  # why the last scan could not list the directory

    @property
    def infos(self) -> list[RunInfo]:
        """Newest first; during a scan those that it has not reached are as of the one before."""
        rest = {run: found for run, found in self._known.items() if run not in self._seen}
        return placed([known.info for known in (self._seen | rest).values()])

    def scan(self) -> Iterator[None]:
        """Reads the runs that changed, newest first; yields after each."""
        self._seen, self.read = {}, 0
        pace = sum(known.info.status == "running" for known in self._known.values()) / LIVE_SHARE
        for run in find_runs(self._runs_dir):
            stamp = _stamp(run)
            before = self._known.get(run)
            # A live run may end without an event, and a new one has no journal: these are read each time.
            due = before is None or before.stamp != stamp or before.info.is_live or stamp[:3] == _NOTHING
            if before is None or (due and not before.is_fresh(stamp, pace)):
                # The stamp is taken first: the next scan sees what is written during the read.
                began = time.thread_time()
                before = _Known(stamp, summarise(run), time.monotonic(), time.thread_time() - began)
                if before.info.status == "queued":
                    keep_watched(run)
                self.read += 1
            self._seen[run] = before
            yield
        self._known = self._seen
        self.problem = "" if self._seen else unreadable(self._runs_dir)


def _stamp(run: RunDir) -> _Stamp:
    return (*_stamp_of(run.journal), *_stamp_of(run.about))


def _stamp_of(path: Path) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return _NOTHING
    return (found.st_ino, found.st_size, found.st_mtime_ns)


class Listing(NamedTuple):
    infos: list[RunInfo]  # newest first
    problem: str = ""  # why they cannot be listed; "" if they can
    whole: bool = True  # False while runs are read for the first time


class RunsFeed(PollingThread):
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
        start_keeper(self._runs_dir)
        keep_searched(self._runs_dir)
        shown_at, whole = time.monotonic(), False
        while True:
            for _ in self._index.scan():
                if time.monotonic() - shown_at > SHOW_S:
                    self._show(whole=whole)
                    yield 0.0
                    shown_at = time.monotonic()
            whole = True
            self._show(whole=True)
            yield self._poll_s

    def _show(self, *, whole: bool) -> None:
        found = Listing(self._index.infos, self._index.problem, whole)
        if found != self._before:
            self._fresh = self._before = found
