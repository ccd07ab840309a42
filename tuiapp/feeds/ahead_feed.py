"""A run's events from a process that has read its journal ahead, and from the journal itself after that."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from trainers.contract.events import RunEnded, RunStarted
from trainers.contract.rundir import RunDir
from tuiapp.feeds.ahead import ReadAhead
from tuiapp.feeds.ahead_worker import Message, Told, decoder
from tuiapp.feeds.feed import MAX_WAITING, JournalFeed


class AheadFeed:
    """Takes what was read ahead, then tails the journal from there.

    Whatever becomes of the process that reads ahead, nothing is lost and nothing comes twice: each of its messages says
    where in the journal it ends.

    Args:
        run: Its directory.
        ahead: What reads its journal; closed with the feed.
    """

    def __init__(self, run: RunDir, ahead: ReadAhead) -> None:
        self._run, self._ahead = run, ahead
        self._waiting: deque[Told] = deque()
        self._offset = 0
        self._ended = False
        self._closed = threading.Event()
        self._lock = threading.Lock()
        """Held while what comes next is begun, or all is closed."""
        self._tail: JournalFeed | None = None
        """What comes next; there once all that was read ahead waits."""
        # A daemon: it must never keep the program from exiting.
        self._thread = threading.Thread(target=self._gather, name="ahead-feed", daemon=True)

    @property
    def lost(self) -> bool:
        """Whether all events have been taken, no supervisor lives, and the run has not said that it ended."""
        tail = self._tail
        return tail is not None and not self._waiting and tail.lost

    @property
    def behind(self) -> bool:
        """Whether the journal has not been read to its end yet."""
        tail = self._tail
        return tail is None or tail.behind

    @property
    def trouble(self) -> str:
        """Why nothing new comes although the run goes on, in its supervisor's words; "" while all is well."""
        tail = self._tail
        return tail.trouble if tail else ""

    def start(self) -> None:
        """Begin to gather."""
        self._thread.start()

    def take(self, limit: int) -> Sequence[Told]:
        """The next events and digests, in order, at most `limit`."""
        tail, waiting = self._tail, self._waiting
        taken = [waiting.popleft() for _ in range(min(limit, len(waiting)))]
        return taken if taken or tail is None else tail.take(limit)

    def close(self) -> None:
        """Stop gathering and end the process."""
        with self._lock:
            self._closed.set()
            if self._tail:
                self._tail.close()
        self._ahead.close()

    def _gather(self) -> None:
        for message in self._ahead.messages():
            try:
                part = decoder.decode(message)
            except msgspec.MsgspecError:
                break
            if self._closed.is_set() or not self._goes_on(part):
                break
            self._hand_on(part)
            while len(self._waiting) > MAX_WAITING and not self._closed.is_set():
                self._closed.wait(0.005)
        self._ahead.close()
        with self._lock:
            if not self._closed.is_set():
                tail = JournalFeed(self._run, offset=self._offset, ended=self._ended)
                tail.start()
                self._tail = tail

    def _goes_on(self, part: Message) -> bool:
        """Whether a part of the journal comes after those that there were, and before its end."""
        try:
            return self._offset < part.offset <= self._run.journal.stat().st_size
        except OSError:
            return False

    def _hand_on(self, part: Message) -> None:
        for told in part.told:
            if isinstance(told, RunEnded | RunStarted):
                self._ended = isinstance(told, RunEnded)
        self._offset = part.offset
        self._waiting.extend(part.told)
