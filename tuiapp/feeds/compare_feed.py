"""The curves of runs, read in a thread from their journals piece by piece, in turn."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuiapp.library.in_thread import PollingThread
from tuiapp.trainers.contract.events import AnyEvent, Facts
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import ALL_BUCKETS, Curves
from tuiapp.trainers.state.follow import Batch, follow
from tuiapp.trainers.state.snapshot import load
from tuiapp.trainers.state.summary import RunInfo, summarise

POLL_S = 1.0  # for live runs, once all is read


MOST_BUCKETS = ALL_BUCKETS // 8
"""Most buckets of all curves of a run: many runs are read at once."""


@dataclass(slots=True)
class Compared:
    info: RunInfo
    place: int = 0  # of its letter and colour
    curves: Curves = field(default_factory=lambda: Curves(by_rank=False, most=MOST_BUCKETS))
    facts: Facts = field(default_factory=lambda: Facts(time=0.0, mono=0.0))
    progress: float | None = 0.0  # share of the journal read, 0 to 1; None once all is read
    batches: Iterator[Batch] | None = None  # None until it is begun

    def note(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Facts):
                self.facts = self.facts.followed_by(event)


class CompareFeed(PollingThread):
    """Reads the curves of runs; which ones may change, and those that stay are not read anew."""

    def __init__(self, runs: Sequence[RunInfo] = (), *, listed: bool = False) -> None:
        """With `listed` a list knows what else there is of the runs, and says it with `show`."""
        super().__init__("compare-feed")
        self._listed = listed
        self.runs: Sequence[Compared] = [Compared(info, index) for index, info in enumerate(runs)]
        """The runs; the list is replaced, never changed."""
        self.lock = threading.Lock()  # held while curves are read
        self.version = 0  # grows with every change

    def show(self, runs: Sequence[RunInfo], places: Mapping[RunDir, int]) -> None:
        """Reads these runs in place of those before, each at the place of its letter and colour."""
        before = {run.info.directory: run for run in self.runs}
        compared = [before.get(info.directory) or Compared(info) for info in runs]
        with self.lock:
            for run, info in zip(compared, runs, strict=True):
                run.info, run.place = info, places[info.directory]
            self.runs = compared
            self.version += 1
        self.poll_now()

    def note_infos(self, infos: Iterable[RunInfo]) -> None:
        """Takes what a list knows by now of runs that are read."""
        compared = {run.info.directory: run for run in self.runs}
        for info in infos:
            compared[info.directory].info = info

    def _poll(self) -> Generator[float, None, None]:
        while True:
            # In turn, even if the previous one has more.
            grown = [self._read_piece(run) for run in self.runs]
            yield 0.0 if any(grown) else POLL_S

    def _begin(self, run: Compared) -> Iterator[Batch]:
        directory = run.info.directory
        digest = load(directory) if run.info.is_readable else None
        if digest is not None:
            curves = digest.state.curves.joined(MOST_BUCKETS)
            with self.lock:
                run.curves, run.facts = curves, digest.state.facts
                self.version += 1
        run.batches = follow(directory, digest.offset if digest else 0)
        return run.batches

    def _read_piece(self, run: Compared) -> bool:
        batches = run.batches or self._begin(run)
        batch = next(batches) if run.info.is_readable else None
        events, progress = (batch.events, batch.share) if batch else ([], None)
        with self.lock:
            run.curves.fold(events)
            run.note(events)
        changed = bool(events) or progress != run.progress
        info = None
        if not self._listed and progress is None and (changed or run.info.is_live):
            info = replace(summarise(run.info.directory), facts=run.facts)
            changed |= info != run.info
        with self.lock:
            # Under one lock: once all is read, the version shows that there is something new to draw.
            run.info, run.progress = info or run.info, progress
            self.version += changed
        return bool(events)
