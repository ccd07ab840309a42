"""The curves of runs, read in a thread from their journals piece by piece, in turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace

from trainers.contract.events import AnyEvent, Facts
from trainers.contract.journal import JournalReader
from trainers.contract.rundir import RunDir
from trainers.state.curves import Curves
from trainers.state.digest import read_digest
from trainers.state.summary import RunInfo, summarise
from tuiapp.feeds.polling import PollingThread

POLL_S = 1.0  # for live runs, once all is read


@dataclass(slots=True)
class Compared:
    info: RunInfo
    curves: Curves = field(default_factory=lambda: Curves(by_rank=False))
    facts: Facts = field(default_factory=lambda: Facts(time=0.0, mono=0.0))
    progress: float | None = 0.0  # share of the journal read, 0 to 1; None once all is read

    def note(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Facts):
                self.facts = self.facts.followed_by(event)


class CompareFeed(PollingThread):
    def __init__(self, runs: Sequence[RunInfo]) -> None:
        super().__init__("compare-feed")
        self.runs = list(map(Compared, runs))
        self.lock = threading.Lock()  # held while curves are read
        self.version = 0  # grows with every change

    def _poll(self) -> Generator[float, None, None]:
        readers = [(run, self._begin(run)) for run in self.runs]
        while True:
            # In turn, even if the previous one has more.
            more = [self._read_piece(run, reader) for run, reader in readers]
            yield 0.0 if any(more) else POLL_S

    def _begin(self, run: Compared) -> JournalReader:
        directory = run.info.directory
        digest = read_digest(directory) if run.info.is_readable else None
        if digest is not None:
            with self.lock:
                run.curves.load(digest)
                run.note(digest.events)
                self.version += 1
        return JournalReader(directory.journal, digest.offset if digest else 0)

    def _read_piece(self, run: Compared, reader: JournalReader) -> bool:
        events = reader.read() if run.info.is_readable else []
        with self.lock:
            run.curves.fold(events)
            run.note(events)
        progress = _share(reader.offset, run.info.directory) if events else None
        info, changed = run.info, bool(events) or progress != run.progress
        if not events and (changed or info.is_live):
            info = replace(summarise(info.directory), facts=run.facts)
            changed |= info != run.info
        with self.lock:
            # Under one lock: once all is read, the version shows that there is something new to draw.
            run.info, run.progress = info, progress
            self.version += changed
        return bool(events)


def _share(offset: int, run: RunDir) -> float:
    try:
        size = os.stat(run.journal).st_size
    except OSError:
        return 1.0
    return min(1.0, offset / size) if size else 1.0
