"""Samples of this machine's devices without a run, from a sampler process of its own."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import IO

from tuiapp.library.in_thread import in_thread
from tuiapp.trainers.config.files import nearest_existing
from tuiapp.trainers.contract.events import Alert, Event, TelemetrySource
from tuiapp.trainers.telemetry.handover import SamplerConfig
from tuiapp.trainers.telemetry.keeper import SamplerKeeper

LOOK_S = 0.02
"""How long a slow disk is waited for."""


class SamplerFeed:
    """Runs a sampler, and returns its events.

    The drivers' libraries are called in that process alone: if a call hangs or crashes, this one continues. The disk
    sampled is that of `directory`, or of its nearest parent that exists.
    """

    def __init__(self, directory: Path, interval_s: float) -> None:
        self._selector = selectors.DefaultSelector()
        self._events: list[Event] = []
        try:
            existing = in_thread(nearest_existing, directory).result(LOOK_S)
        except TimeoutError:
            existing = directory
        order = SamplerConfig(run_dir=str(existing), gpus="all", interval_s=interval_s)
        self._keeper = SamplerKeeper(order, os.environ, _no_log, self._events.append, self._watch, self._forget)

    @property
    def failure(self) -> TelemetrySource | None:
        return self._keeper.failure

    def read(self, timeout_s: float = 0.0) -> list[Event]:
        """Returns the new events, waiting up to `timeout_s` for the first; to be called a few times a second."""
        for key, _ in self._selector.select(timeout_s):
            key.data()
        self._keeper.advance(monotonic())
        # Alerts are for a run's log.
        events = [event for event in self._events if not isinstance(event, Alert)]
        self._events.clear()
        return events

    def close(self) -> None:
        self._keeper.end()
        self._selector.close()

    def _watch(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def _forget(self, fd: int) -> None:
        self._selector.unregister(fd)


def _no_log() -> IO[bytes]:
    return open(os.devnull, "ab")
