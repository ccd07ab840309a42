"""Sources of a view's events: a run's journal, tailed in a thread, or a replay of it; and what is written beside it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, Protocol

from tuiapp.library.in_thread import PollingThread, in_thread
from tuiapp.library.liveness import LivenessProbe
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Event, Queued, RunEnded, RunStarted
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, read_about
from tuiapp.trainers.contract.status import NOTHING
from tuiapp.trainers.state.follow import CHECK_EVERY_S, follow
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.snapshot import load_to_watch
from tuiapp.trainers.state.status import Known, known, read_config
from tuiapp.trainers.state.summary import read_only_reason

POLL_S = 0.08  # for a growing journal that is read to its end
ENDED_POLL_S = 1.0  # after the run's end, as it may be resumed
METADATA_POLL_S = 1.0
CHUNK_BYTES = 1 << 17
"""Bytes read at a time: few, so that the thread that handles keys soon gets the interpreter."""

MAX_WAITING = 4096  # queued events at which the thread stops reading


class Feed(Protocol):
    """A source of events that never blocks its reader."""

    @property
    def lost(self) -> bool:
        """Whether all events have been taken, no supervisor is alive, and the journal has no end of the run."""
        ...

    @property
    def removed(self) -> bool:
        """Whether a lost run's directory is gone."""
        ...

    @property
    def reading(self) -> float | None:
        """Share of its source that has been read, 0 to 1, until its end was reached and all was taken; then None.

        What is known until then is past: poll again at once.
        """
        ...

    @property
    def trouble(self) -> str:
        """Why a live run reports nothing new, in its supervisor's words; "" while all is well."""
        ...

    def start(self) -> None: ...

    def take(self, limit: int) -> Sequence[object]:
        """Returns at most `limit` of the next events in order, possibly none.

        A `RunState`, what all before them have come to, may precede the first.
        """
        ...

    def close(self) -> None: ...


class JournalFeed(PollingThread):
    """Tails a run's journal: all events with `whole`, otherwise its digest, if any, and the events after it."""

    def __init__(
        self,
        run: RunDir,
        *,
        poll_s: float = POLL_S,
        live_check_s: float = CHECK_EVERY_S,
        whole: bool = False,
    ) -> None:
        super().__init__("journal-feed")
        self._run, self._whole = run, whole
        self._poll_s, self._live_check_s = poll_s, live_check_s
        self._waiting: deque[AnyEvent | RunState] = deque()
        self._dead = False
        self.removed = False
        self._ended = False
        self._share: float | None = 0.0  # of the journal that was read; None once it was read to its end
        self._taken = False  # all events up to that end
        self.trouble = ""
        self._place = ""

    @property
    def lost(self) -> bool:
        return self._dead and not self._waiting

    @property
    def reading(self) -> float | None:
        share = self._share
        self._taken |= share is None and not self._waiting
        return None if self._taken else 1.0 if share is None else share

    def take(self, limit: int) -> list[AnyEvent | RunState]:
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(limit, len(waiting)))]

    def _poll(self) -> Generator[float, None, None]:
        with LivenessProbe(self._run) as pulse:
            yield from self._tail(pulse)

    def _tail(self, pulse: LivenessProbe) -> Generator[float, None, None]:
        offset = 0
        if not self._whole and (digest := load_to_watch(self._run)):
            offset, self._ended = digest.offset, digest.state.ended is not None
            self._waiting.append(digest.state)
        for batch in follow(self._run, offset, pulse, check_every_s=self._live_check_s, chunk_bytes=CHUNK_BYTES):
            kept_up = self._share is None
            self._waiting.extend(batch.events)
            self._share = batch.share
            self._taken &= batch.share is None
            if batch.events:
                for event in batch.events:
                    if isinstance(event, RunEnded | RunStarted | Queued):
                        self._ended = isinstance(event, RunEnded)
                self._dead = False
                # What is written meanwhile is read together: many small reads cost more.
                yield self._poll_s if kept_up and batch.left <= CHUNK_BYTES else 0.0
            else:
                if batch.checked:
                    dead = not batch.alive and not self._ended
                    self.removed = dead and self._run.is_gone()
                    self._dead, self.trouble = dead, batch.trouble
                    self._tell_of_the_queue()
                yield ENDED_POLL_S if self._ended else self._poll_s
            while len(self._waiting) > MAX_WAITING:
                yield 0.005

    def _tell_of_the_queue(self) -> None:
        """Says how the run stands in the queue, which no journal knows."""
        if os.path.exists(self._run.waits):
            # Few runs wait there.
            from tuiapp.library.queue_words import describe_place

            place = describe_place(self._run)
            if place != self._place:
                self._waiting.append(Queued(job="", reason=place))
            self._place = place


class RunMetadata(NamedTuple):
    about: About
    newer: str
    """Why the run is read only, as `read_only_reason` says."""
    config: dict[str, object]
    """The configuration as in run.toml, empty if that is unreadable: all that is known before the first event."""


class MetadataFeed(PollingThread):
    """Polls what is written beside a run's journal."""

    def __init__(self, run: RunDir) -> None:
        super().__init__("about-feed")
        self._run = run
        self.metadata: RunMetadata | None = None  # None until it was read

    def _poll(self) -> Generator[float, None, None]:
        newer = read_only_reason(self._run)
        config: dict[str, object] = {}
        with suppress(ConfigError, OSError):
            config = to_toml_values(read_config(self._run))
        while True:
            self.metadata = RunMetadata(read_about(self._run)[0], newer, config)
            yield METADATA_POLL_S


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
