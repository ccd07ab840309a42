"""Where a view's events come from: a thread tails the journal, the screen takes what has arrived when it has time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from trainers.contract.digest import Digest, read_digest
from trainers.contract.events import AnyEvent, RunEnded, RunStarted
from trainers.contract.journal import JournalReader
from trainers.contract.lock_note import read_note
from trainers.contract.rundir import RunDir

POLL_S = 0.08
"""How often a journal that grows is looked at once it has been read to its end."""

ENDED_POLL_S = 1.0
"""How often after the run's end: it may be resumed."""

LIVE_CHECK_S = 1.0
"""How often the lock is tried, to see whether the supervisor still lives."""

CHUNK_BYTES = 1 << 17
"""What is read at a time: little, so that the thread that answers keys soon has the interpreter to itself."""

MAX_WAITING = 4096
"""Events that wait to be taken; the thread reads no further while there are more."""


class Feed(Protocol):
    """A source of events that never makes its taker wait."""

    @property
    def lost(self) -> bool:
        """Whether all events have been taken, no supervisor lives, and the run has not said that it ended."""
        ...

    @property
    def behind(self) -> bool:
        """Whether more is known to be on its way: it is worth coming back at once."""
        ...

    @property
    def trouble(self) -> str:
        """Why nothing new comes although the run goes on, in its supervisor's words; "" while all is well."""
        ...

    def start(self) -> None:
        """Begin to gather events."""
        ...

    def take(self, limit: int) -> Sequence[object]:
        """The next that a run's state takes in, in order; empty when nothing has arrived.

        First of all there may be a digest of the events up to some place.

        Args:
            limit: How many at most.
        """
        ...

    def close(self) -> None:
        """Stop gathering; does not wait for it."""
        ...


class JournalFeed:
    """Tails the journal of a run, live or ended.

    Args:
        run: Its directory.
        poll_s: How often to look for more.
        live_check_s: How often to look whether the supervisor lives.
        whole: Whether to give out all events, one by one, from the first on. Otherwise it begins with the run's digest,
            if there is one, and gives out what comes after that.
    """

    def __init__(
        self,
        run: RunDir,
        *,
        poll_s: float = POLL_S,
        live_check_s: float = LIVE_CHECK_S,
        whole: bool = False,
    ) -> None:
        self._run, self._whole = run, whole
        self._reader = JournalReader(run.journal, chunk_bytes=CHUNK_BYTES)
        self._poll_s = poll_s
        self._checks_every = max(1, round(live_check_s / poll_s))
        self._waiting: deque[AnyEvent | Digest] = deque()
        self._closed = threading.Event()
        self._dead = False
        self._ended = False
        self._polls = 0
        self.behind = True
        """Whether the journal has not been read to its end yet."""
        self.trouble = ""
        """Why nothing new comes although the run goes on, in its supervisor's words; "" while all is well."""
        # A daemon: it must never keep the program from exiting.
        self._thread = threading.Thread(target=self._tail, name="journal-feed", daemon=True)

    @property
    def lost(self) -> bool:
        """Whether all events have been taken, no supervisor lives, and the run has not said that it ended."""
        return self._dead and not self._waiting

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def take(self, limit: int) -> list[AnyEvent | Digest]:
        """The run's digest, if it begins with that, and then the next events, in order; at most `limit`."""
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(limit, len(waiting)))]

    def close(self) -> None:
        """Tell the thread to end; it does so within a poll."""
        self._closed.set()

    def _tail(self) -> None:
        if not self._whole and (digest := read_digest(self._run)):
            self._reader = JournalReader(self._run.journal, digest.offset, CHUNK_BYTES)
            self._note_ends(digest.events)
            self._waiting.append(digest)
        while not self._closed.is_set():
            if len(self._waiting) > MAX_WAITING:
                self._closed.wait(0.005)
                continue
            # Liveness is asked before the read: what a supervisor wrote before it let go of the lock is then seen.
            alive = self._run.is_live() if self._polls % self._checks_every == 0 else None
            events = self._reader.read()
            self.behind = bool(events)
            if events:
                self._waiting.extend(events)
                self._note_ends(events)
                self._dead = False
                continue
            if alive is not None:
                self._dead = not alive and not self._ended
                self.trouble = read_note(self._run).trouble if alive else ""
            self._polls += 1
            self._closed.wait(ENDED_POLL_S if self._ended else self._poll_s)

    def _note_ends(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, RunEnded | RunStarted):
                self._ended = isinstance(event, RunEnded)
