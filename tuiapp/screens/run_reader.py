"""Folds a feed's new events for the Run screen, for a bounded time, and reports what changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import floor
from typing import NamedTuple, get_args

from tuiapp.feeds.feed import Feed, MetadataFeed, ReplayFeed
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunClock, RunState, Topic

TAKE = 64
"""Events folded between two looks at the clock."""

ALL_TOPICS: frozenset[Topic] = frozenset(get_args(Topic))

FIGURES: frozenset[Topic] = frozenset({"run", "ranks", "devices", "curves"})
"""Parts that consist mostly of figures and curves."""

FIGURES_S = 0.9
"""Least time between two updates of figures: then all are painted at once."""

PROGRESS_S = 0.45
"""Least time between two looks at how much of a journal is read."""

CATCH_UP_S = 1.0
"""Time between two pictures while a long journal is read."""

WAIT_S = 0.002
"""Polling interval while the first picture waits for a feed."""

SEEK_FRACTION = 0.05
"""Fraction of a replay that a key seeks by."""


class Reading(NamedTuple):
    topics: frozenset[Topic]
    has_more: bool


class RunReader:
    def __init__(self, run: RunDir, feed: Feed, clock: Callable[[], float]) -> None:
        self.run, self._feed, self._clock = run, feed, RunClock(clock)
        self._about = MetadataFeed(run)
        self.replay = feed if isinstance(feed, ReplayFeed) else None
        self.state = self._empty()
        self._generation = 0
        self._second = -1
        self._held: set[Topic] = set()
        """Changed parts that are not shown yet."""
        self._shown_at = time.monotonic()
        self._figures_at = 0.0
        self._progress_at = self._shown_at

    @property
    def now(self) -> float:
        """The displayed moment, in seconds since the epoch; a replay has its own clock."""
        return self.replay.now if self.replay else self._clock.now()

    def start(self) -> None:
        self._shown_at = self._progress_at = time.monotonic()
        self._about.start()
        self._feed.start()

    def close(self) -> None:
        self._about.close()
        self._feed.close()

    async def read_soon(self, budget_s: float, patience_s: float) -> Reading:
        """Folds events until there is something to show, or for `patience_s`; `budget_s` as for `read`."""
        until = time.monotonic() + patience_s
        while self._about.metadata is None and time.monotonic() < until:
            await asyncio.sleep(WAIT_S)
        while (reading := self.read(budget_s)).has_more and not reading.topics and time.monotonic() < until:
            await asyncio.sleep(WAIT_S)
        return reading

    def read(self, budget_s: float) -> Reading:
        """Folds new events for at most `budget_s`: no key is served meanwhile."""
        started = time.perf_counter()
        if self.replay is not None and self.replay.generation != self._generation:
            self._generation, self.state = self.replay.generation, self._empty()
            self._held |= ALL_TOPICS
        has_more = True
        while has_more and time.perf_counter() - started < budget_s:
            events = self._feed.take(TAKE)
            for event in events:
                apply(self.state, event)
            has_more = len(events) == TAKE
        if not has_more and self._feed.lost:
            self.state.mark_lost(removed=self._feed.removed)
        elif not has_more:
            self.state.mark_found()
        self.state.note_trouble(self._feed.trouble)
        self._take_about()
        self.state.note_reading(None if (share := self._feed.reading) is None else floor(100 * share) / 100)
        has_more = has_more or share is not None
        self._clock.sync(self.state.last_time, more=has_more)
        self._held |= self.state.take_changes()
        second = int(self.now)
        if second != self._second:
            # Times and silences grow without events.
            self._second = second
            self._held |= {"run", "ranks"} if self.state.is_live else set()
        return Reading(self._due(has_more), has_more)

    def refresh_about(self) -> None:
        """Reads name, tags and note again, which any process may have changed."""
        self._about.poll_now()

    def _take_about(self) -> None:
        metadata, state = self._about.metadata, self.state
        if metadata is not None and (state.about, state.newer, state.planned) != metadata:
            state.about, state.newer, state.planned = metadata
            self._held |= {"run", "alerts"}

    def _due(self, has_more: bool) -> frozenset[Topic]:
        """Returns the changes to show now.

        While a long journal is read, all wait for a second: each picture costs as much as many events. Figures
        that change with each batch of steps are shown once a second: nobody reads them faster.
        """
        now = time.monotonic()
        waits = now - self._figures_at < FIGURES_S
        calm = waits and self.state.is_live and self.replay is None and "alerts" not in self._held
        if has_more and now - self._shown_at < CATCH_UP_S:
            # How far it has come stands in the header alone, which costs little.
            if self.state.reading is None or "run" not in self._held or now - self._progress_at < PROGRESS_S:
                return frozenset()
            self._progress_at = now
            self._held.discard("run")
            return frozenset({"run"})
        due = frozenset(self._held - FIGURES if calm else self._held)
        if due:
            self._shown_at = now
        if not calm and self._held & FIGURES:
            self._figures_at = now
        self._held -= due
        return due

    def _empty(self) -> RunState:
        state = RunState(self.run.run_id)
        state.replayed = self.replay is not None
        return state


def steer(replay: ReplayFeed, what: str) -> None:
    """Applies "pause", "slower", "faster", "back" or "forward" to a replay."""
    if what == "pause":
        replay.toggle_pause()
    elif what in ("slower", "faster"):
        replay.change_speed(1 if what == "faster" else -1)
    else:
        by = SEEK_FRACTION * replay.duration
        replay.seek(replay.position + (by if what == "forward" else -by))
