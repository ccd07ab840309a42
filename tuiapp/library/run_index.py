"""The runs of a directory, read again only where something has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tuiapp.library.find import find_runs, unreadable
from tuiapp.library.liveness import keep_watched
from tuiapp.library.queue_words import with_places
from tuiapp.trainers.config.files import bytes_below
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import RunInfo, summarise

POLL_S = 1.0
"""Seconds between two scans, unless a reader says otherwise."""

MEASURE_S = 30.0
"""Seconds between two measurements of what a run takes on the disk, as of a live one."""

LIVE_SHARE = 0.04  # of a core, about, for reading live runs again
MOST_AGE_S = 5.0  # of what is known of a live run, however many there are

Times: TypeAlias = tuple[int, int, int]
"""A file's inode, size, and time of change in nanoseconds; zeros for one that is missing."""
MISSING: Times = (0, 0, 0)

# A supervisor that takes the lock notes that in it; the other files that tell who has a run, or waits for it, come and
# go in the directory.
_STAMPED = tuple(file.name for file in (RunDir.journal, RunDir.about, RunDir.config, RunDir.lock))


class _Known(NamedTuple):
    stamp: tuple[Times, ...]  # changes when one of the files changes from which a run is read
    info: RunInfo
    read_at: float = 0.0
    took_s: float = 0.0  # of processor time
    measured: tuple[Times, ...] = ()  # the stamp when its directory was measured last
    measured_at: float = 0.0

    def is_fresh(self, stamp: tuple[Times, ...], pace: float) -> bool:
        """Whether it was read less than so many times as long ago as that took, if that is long."""
        rest_s = min(MOST_AGE_S, pace * self.took_s)
        named = stamp[1] == self.stamp[1]  # what the user says of it is seen at once
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
        """The runs, newest first; during a scan those that it has not reached are as of the scan before."""
        unscanned = {run: entry for run, entry in self._known.items() if run not in self._seen}
        return with_places([entry.info for entry in (self._seen | unscanned).values()])

    def read_all(self) -> list[RunInfo]:
        """Scans to the end; returns `infos`."""
        for _ in self.scan():
            pass
        return self.infos

    def scan(self) -> Iterator[None]:
        """Reads the runs that changed, newest first; yields after each."""
        self._seen, self.read = {}, 0
        pace = sum(entry.info.status == "running" for entry in self._known.values()) / LIVE_SHARE
        for run in find_runs(self._runs_dir):
            stamp = _stamp(run)
            before = self._known.get(run)
            # A live run may end without an event, and a new one has no journal: these are read each time.
            due = before is None or before.stamp != stamp or before.info.is_live or stamp[0] == MISSING
            if before is None or (due and not before.is_fresh(stamp, pace)):
                # The stamp is taken first: the next scan sees what is written during the read.
                began = time.thread_time()
                info = replace(summarise(run), disk_bytes=before.info.disk_bytes if before else None)
                took_s = time.thread_time() - began
                measured = (before.measured, before.measured_at) if before else ((), 0.0)
                before = _Known(stamp, info, time.monotonic(), took_s, *measured)
                if before.info.status == "queued":
                    keep_watched(run)
                self.read += 1
            self._seen[run] = before
            yield
        self._known = self._seen
        self.problem = "" if self._seen else unreadable(self._runs_dir)

    def measure(self) -> Iterator[None]:
        """Measures what the runs take on the disk that have changed since; yields after each."""
        for run, entry in [*self._known.items()]:
            waits = entry.measured and time.monotonic() - entry.measured_at < MEASURE_S
            if entry.measured != entry.stamp and not waits:
                info = replace(entry.info, disk_bytes=bytes_below(run.path))
                self._known[run] = entry._replace(info=info, measured=entry.stamp, measured_at=time.monotonic())
                yield


def _stamp(run: RunDir) -> tuple[Times, ...]:
    path = str(run.path)
    return (*[_times(f"{path}/{name}") for name in _STAMPED], _times(path))


def _times(path: str) -> Times:
    try:
        status = os.stat(path)
    except OSError:
        return MISSING
    return (status.st_ino, status.st_size, status.st_mtime_ns)
