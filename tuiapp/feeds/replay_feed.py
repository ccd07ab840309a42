"""A replay: the events of a run's journal at their original pace, or at a multiple of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from tuiapp.feeds.feed import Feed, JournalFeed
from tuiapp.library.in_thread import in_thread
from tuiapp.trainers.contract.events import Event, RunStarted
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.status import NOTHING
from tuiapp.trainers.state.status import Known, known

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)  # for the speed keys
READ_AHEAD = 512  # queued events
KNOWN_S = 0.02  # longest wait at a time for when the run began and ended


class ReplayFeed:
    """Returns a journal's events when they are due, on a clock that can be paused, sped up and moved.

    The clock starts at the run's first event. To go back, the journal is read again from its start: `generation` then
    increases, and the reader must start with an empty state. A live run can be replayed too; at the end of its journal
    the clock waits for more. The pause between two attempts is left out. `speed` is in seconds of the run per second.
    """

    trouble = ""

    def __init__(
        self,
        run: RunDir,
        speed: float = 1.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        source: Callable[[RunDir], Feed] = lambda run: JournalFeed(run, whole=True),
    ) -> None:
        self._run, self._clock, self._make = run, clock, source
        self.speed = min(SPEEDS[-1], max(SPEEDS[0], speed))
        self._source = source(run)
        self._waiting: deque[Event] = deque()
        self._started = False
        self._paused = False
        self._known: Future[Known] | None = None
        self._beginning: float | None = None
        self._end = 0.0
        self._now = 0.0  # time of the run, in seconds since the epoch, at `_anchor`
        self._anchor = 0.0
        self._shown = 0.0  # time of the last event taken
        self.generation = 0  # how often the journal was restarted

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def now(self) -> float:
        """Time of the run that is shown, in seconds since the epoch; at most that of the journal's last event."""
        if self._beginning is None:
            return 0.0
        passed = 0.0 if self._paused else (self._clock() - self._anchor) * self.speed
        return min(self._now + passed, max(self._end, self._now))

    @property
    def position(self) -> float:
        return max(0.0, self.now - self._beginning) if self._beginning is not None else 0.0

    @property
    def duration(self) -> float:
        return max(0.0, self._end - self._beginning) if self._beginning is not None else 0.0

    @property
    def at_end(self) -> bool:
        return not self._waiting and self._beginning is not None and self.now >= self._end

    @property
    def reading(self) -> float | None:
        """Share of the replay's events read up to its clock; None unless some are due that were not taken yet."""
        if self._beginning is None:
            return None
        due = self._waiting[0].time <= self.now if self._waiting else self._source.reading is not None
        passed = self.now - self._beginning
        return min(1.0, (self._shown - self._beginning) / passed) if due and passed > 0 else None

    @property
    def lost(self) -> bool:
        """Whether the replay is at the end of a journal without an end of the run."""
        return not self._waiting and self._source.lost

    @property
    def removed(self) -> bool:
        return self._source.removed

    def start(self) -> None:
        self._started = True
        self._source.start()

    def close(self) -> None:
        self._source.close()

    def take(self, limit: int) -> list[Event]:
        if self._beginning is None and not self._set_out():
            return []
        taken: list[Event] = []
        while len(taken) < limit:
            if not self._waiting:
                self._fetch()
                if not self._waiting:
                    break
            event = self._waiting[0]
            self._end = max(self._end, event.time)
            if event.time > self.now:
                if not (isinstance(event, RunStarted) and event.attempt > 1):
                    break
                self._move(event.time)
            taken.append(self._waiting.popleft())
        self._shown = taken[-1].time if taken else self._shown
        return taken

    def toggle_pause(self) -> None:
        """Pauses or continues; at the end, restarts."""
        if self.at_end and not self._paused:
            self.seek(0.0)
            return
        self._move(self.now)
        self._paused = not self._paused

    def change_speed(self, by: int) -> None:
        """Changes the speed by that many places in `SPEEDS`; negative for slower."""
        self._move(self.now)
        nearest = min(range(len(SPEEDS)), key=lambda index: abs(SPEEDS[index] - self.speed))
        self.speed = SPEEDS[min(len(SPEEDS) - 1, max(0, nearest + by))]

    def seek(self, seconds: float) -> None:
        if self._beginning is None:
            return
        moment = self._beginning + min(max(0.0, seconds), self.duration)
        if moment < self.now:
            self._source.close()
            self._source = self._make(self._run)
            self._waiting.clear()
            self.generation += 1
            self._shown = self._beginning
            if self._started:
                self._source.start()
        self._move(moment)

    def _set_out(self) -> bool:
        self._known = self._known or in_thread(known, self._run)
        try:
            status = self._known.result(KNOWN_S).status
        except TimeoutError:
            return False
        except OSError:
            status = NOTHING
        self._known = None
        begin = status.first_time
        if begin is None:
            self._fetch()
            if not self._waiting:
                return False
            begin = self._waiting[0].time
        self._beginning, self._end = begin, max(begin, status.time)
        self._move(begin)
        return True

    def _fetch(self) -> None:
        self._waiting.extend(event for event in self._source.take(READ_AHEAD) if isinstance(event, Event))

    def _move(self, moment: float) -> None:
        self._now, self._anchor = moment, self._clock()
