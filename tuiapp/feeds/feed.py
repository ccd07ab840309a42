"""Sources of a view's events: a thread tails the journal, and the screen polls for what has arrived."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from tuiapp.feeds.polling import PollingThread
from tuiapp.library.liveness import LivenessProbe
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import to_toml_values
from tuiapp.trainers.contract.about import About, read_about
from tuiapp.trainers.contract.events import AnyEvent, Queued, RunEnded, RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.digest import Digest, read_digest
from tuiapp.trainers.state.summary import read_config, read_only_reason

POLL_S = 0.08  # for a growing journal that is read to its end
ENDED_POLL_S = 1.0  # after the run's end, as it may be resumed
METADATA_POLL_S = 1.0
LIVE_CHECK_S = 1.0  # tries the lock, to see whether the supervisor is alive
CHUNK_BYTES = 1 << 17
"""Read at a time: little, so that the thread that handles keys soon gets the interpreter."""

SLACK_BYTES = 8 * CHUNK_BYTES
"""Left unread by a feed that keeps up: hundreds of ranks write as much in half a second."""

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
        """Returns at most `limit` of the next events in order, possibly none; a digest may precede the first."""
        ...

    def close(self) -> None: ...


class JournalFeed(PollingThread):
    """Tails a run's journal: all events with `whole`, otherwise its digest, if any, and the events after it."""

    def __init__(
        self,
        run: RunDir,
        *,
        poll_s: float = POLL_S,
        live_check_s: float = LIVE_CHECK_S,
        whole: bool = False,
    ) -> None:
        super().__init__("journal-feed")
        self._run, self._whole = run, whole
        self._reader = JournalReader(run.journal, chunk_bytes=CHUNK_BYTES)
        self._poll_s = poll_s
        self._checks_every = max(1, round(live_check_s / poll_s))
        self._waiting: deque[AnyEvent | Digest] = deque()
        self._dead = False
        self.removed = False
        self._ended = False
        self._polls = 0
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

    def take(self, limit: int) -> list[AnyEvent | Digest]:
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(limit, len(waiting)))]

    def _poll(self) -> Generator[float, None, None]:
        with LivenessProbe(self._run) as pulse:
            yield from self._tail(pulse)

    def _tail(self, pulse: LivenessProbe) -> Generator[float, None, None]:
        if not self._whole and (digest := read_digest(self._run)):
            self._reader = JournalReader(self._run.journal, digest.offset, CHUNK_BYTES)
            self._note_ends(digest.events)
            self._waiting.append(digest)
        is_new = False
        while True:
            if len(self._waiting) > MAX_WAITING:
                yield 0.005
                continue
            # Check liveness before the read: what a supervisor wrote before it released the lock is then seen. A
            # journal that grows needs no check, which takes seconds in a slow directory.
            alive = pulse.is_alive() if not is_new and self._polls % self._checks_every == 0 else None
            keeps_up = self._share is None
            # What is written during the first reading is not waited for.
            size = 0 if keeps_up else self._size()
            events = self._reader.read()
            is_new = bool(events)
            if events:
                self._waiting.extend(events)
                self._note_ends(events)
                self._dead = False
            if not events:
                size = 0
            elif keeps_up:
                size = self._size()
            left = self._note_share(size)
            if events:
                # What is written meanwhile is read together: many small reads cost more.
                yield self._poll_s if keeps_up and left <= CHUNK_BYTES else 0.0
                continue
            if alive is not None:
                dead = not alive and not self._ended
                self.removed = dead and self._run.is_gone()
                self._dead = dead
                self.trouble = pulse.trouble if alive else ""
                self._tell_of_the_queue()
            self._polls += 1
            yield ENDED_POLL_S if self._ended else self._poll_s

    def _tell_of_the_queue(self) -> None:
        """Says how the run stands in the queue, which no journal knows."""
        if os.path.exists(self._run.waits):
            # Few runs wait there.
            from tuiapp.trainers.experiments.queue import describe_place

            words = describe_place(self._run)
            if words != self._place:
                self._waiting.append(Queued(job="", reason=words))
            self._place = words

    def _size(self) -> int:
        with suppress(OSError):
            return os.stat(self._run.journal).st_size
        return 0

    def _note_share(self, size: int) -> int:
        """Notes how much of a journal of that size is read, 0 if nothing is left; returns the bytes left."""
        left = size - self._reader.offset
        # Once the end was reached, more is left only if this program was suspended.
        if left > (SLACK_BYTES if self._share is None else 0):
            self._share, self._taken = self._reader.offset / size, False
        else:
            self._share = None
        return left

    def _note_ends(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, RunEnded | RunStarted | Queued):
                self._ended = isinstance(event, RunEnded)


class RunMetadata(NamedTuple):
    about: About
    newer: str
    """As of `read_only_reason`."""
    config: dict[str, object]
    """As in run.toml, empty if it cannot be read: all that is known of a run before its first event."""


class MetadataFeed(PollingThread):
    """Polls what is written beside a run's journal."""

    def __init__(self, run: RunDir) -> None:
        super().__init__("about-feed")
        self._run = run
        self.found: RunMetadata | None = None  # None until it was read

    def _poll(self) -> Generator[float, None, None]:
        newer = read_only_reason(self._run)
        config: dict[str, object] = {}
        with suppress(ConfigError, OSError):
            config = to_toml_values(read_config(self._run))
        while True:
            self.found = RunMetadata(read_about(self._run)[0], newer, config)
            yield METADATA_POLL_S
