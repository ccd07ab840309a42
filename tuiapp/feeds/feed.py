"""Sources of a view's events: a thread tails the journal, and the screen polls for what has arrived."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from tuiapp.library.in_thread import PollingThread
from tuiapp.library.liveness import LivenessProbe
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Queued, RunEnded, RunStarted
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, read_about
from tuiapp.trainers.state.follow import CHECK_EVERY_S, follow
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.snapshot import load_to_watch
from tuiapp.trainers.state.status import read_config
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
