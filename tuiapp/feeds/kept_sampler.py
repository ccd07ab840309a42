"""A sampler that is started anew when it has crashed or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from trainers.contract.events import AnyEvent, TelemetrySource
from tuiapp.feeds.sampler_feed import SamplerGone, Samples

FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 60.0
"""Before it is started anew: doubled each time."""

HEALTHY_S = 120.0
"""One that lasted so long is started anew as soon as the first was."""


class KeptSampler:
    """Samples over all restarts of a sampler; what has become of it comes among them.

    Args:
        make: Gives a sampler that was not started yet.
    """

    def __init__(self, make: Callable[[], Samples]) -> None:
        self._make = make
        self._closed = threading.Event()
        self._lock = threading.Lock()
        """Held while a sampler is started, or all is closed."""
        self._sampler: Samples | None = None

    def samples(self) -> Iterator[list[AnyEvent]]:
        """All events of each moment, until it is closed; blocks until the next has come."""
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                yield from self._until_it_is_gone()
            except SamplerGone as problem:
                if time.monotonic() - began > HEALTHY_S:
                    pause_s = FIRST_PAUSE_S
                text = f"{problem}; it is started anew in {pause_s:.0f} s"
                yield [TelemetrySource(source="sampler", problem=text)]
            self._end_sampler()
            self._closed.wait(pause_s)
            pause_s = min(LAST_PAUSE_S, 2 * pause_s)

    def close(self) -> None:
        """Stop sampling."""
        self._closed.set()
        self._end_sampler()

    def _until_it_is_gone(self) -> Iterator[list[AnyEvent]]:
        with self._lock:
            if self._closed.is_set():
                return
            self._sampler = self._make()
            self._sampler.start()
        sampler, works = self._sampler, False
        for events in sampler.samples():
            yield events if works else [*events, TelemetrySource(source="sampler")]
            works = True

    def _end_sampler(self) -> None:
        with self._lock:
            if self._sampler is not None:
                self._sampler.close()
