"""The runs of a directory, polled: only changed ones are read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from trainers.contract.rundir import RunDir
from trainers.contract.summary import RunInfo, summarise
from tuiapp.library.find import list_runs, unreadable
from tuiapp.library.queue_watch import keep_watched

_Stamp: TypeAlias = tuple[int, ...]  # inode, size and change time of two files; zeros for one that is missing
_NOTHING = (0, 0, 0)


class RunIndex:
    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._known: dict[RunDir, tuple[_Stamp, RunInfo]] = {}
        self.read = 0  # runs that the last scan had to read
        self.problem = ""  # why the last scan could not list the directory

    def scan(self) -> list[RunInfo]:
        known = self._known
        self._known, self.read = {}, 0
        for run in list_runs(self._runs_dir):
            stamp = _stamp(run)
            before = known.get(run)
            # A live run may end without an event, and a new one has no journal: these are read each time.
            if before is None or before[0] != stamp or before[1].is_live or stamp[:3] == _NOTHING:
                # The stamp is taken first: the next scan sees what is written during the read.
                before = (stamp, summarise(run))
                if before[1].status == "queued":
                    keep_watched(run)
                self.read += 1
            self._known[run] = before
        self.problem = "" if self._known else unreadable(self._runs_dir)
        return [info for _, info in self._known.values()]


def _stamp(run: RunDir) -> _Stamp:
    return (*_stamp_of(run.journal), *_stamp_of(run.about))


def _stamp_of(path: Path) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return _NOTHING
    return (found.st_ino, found.st_size, found.st_mtime_ns)
