"""The runs of a directory, polled: only changed ones are read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from trainers.contract.rundir import RunDir
from trainers.state.summary import RunInfo, summarise
from tuiapp.library.find import find_runs, unreadable
from tuiapp.library.liveness import keep_watched

_Stamp: TypeAlias = tuple[int, ...]  # inode, size and change time of two files; zeros for one that is missing
_NOTHING = (0, 0, 0)


class RunIndex:
    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._known: dict[RunDir, tuple[_Stamp, RunInfo]] = {}
        self._seen: dict[RunDir, tuple[_Stamp, RunInfo]] = {}  # by the scan under way
        self.read = 0  # runs that the last scan had to read
        self.problem = ""  # why the last scan could not list the directory

    @property
    def infos(self) -> list[RunInfo]:
        """Newest first; during a scan those that it has not reached are as of the one before."""
        rest = {run: found for run, found in self._known.items() if run not in self._seen}
        return [info for _, info in (self._seen | rest).values()]

    def scan(self) -> Iterator[None]:
        """Reads the runs that changed, newest first; yields after each."""
        self._seen, self.read = {}, 0
        for run in find_runs(self._runs_dir):
            stamp = _stamp(run)
            before = self._known.get(run)
            # A live run may end without an event, and a new one has no journal: these are read each time.
            if before is None or before[0] != stamp or before[1].is_live or stamp[:3] == _NOTHING:
                # The stamp is taken first: the next scan sees what is written during the read.
                before = (stamp, summarise(run))
                if before[1].status == "queued":
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
