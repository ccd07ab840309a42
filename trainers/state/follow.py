"""The one loop that reads a run's journal while it grows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.contract.journal import READ_BYTES, JournalReader
from tuiapp.trainers.contract.rundir import RunDir

CHECK_EVERY_S = 1.0
SLACK_BYTES = 1 << 20
"""Bytes that who keeps up may leave unread: hundreds of ranks write as many in half a second."""


class Probe(Protocol):
    """Tells whether a run is live, as `tuiapp.library.liveness.LivenessProbe` does."""

    trouble: str

    def is_alive(self) -> bool: ...


class Batch(NamedTuple):
    events: list[AnyEvent]
    """The next ones in order; empty if there is nothing new."""
    offset: int
    """Where the journal goes on after them."""
    left: int
    """Bytes of the journal that are not read yet."""
    share: float | None
    """Part of the journal that is read, 0 to 1; None from when its end was reached."""
    alive: bool
    """Whether the run was live when that was last checked, before this read. If it was not, an empty batch is the last,
    unless somebody resumes the run."""
    checked: bool
    """Whether that was just before this read."""
    trouble: str
    """Why a live run reports nothing new; "" while all is well."""


def follow(
    run: RunDir,
    offset: int = 0,
    probe: Probe | None = None,
    *,
    check_every_s: float = CHECK_EVERY_S,
    chunk_bytes: int = READ_BYTES,
) -> Iterator[Batch]:
    """Yields what a run's journal has from `offset`, and then what it gets, without an end.

    It never waits: the caller does, after an empty batch. Without a `probe` every run counts as live. A journal that
    grows is not checked: in a slow directory that takes seconds.
    """
    reader = JournalReader(run.journal, offset, chunk_bytes)
    alive, trouble, checked_at = True, "", float("-inf")
    grows = keeps_up = False
    while True:
        checks = probe is not None and not grows and time.monotonic() - checked_at >= check_every_s
        if probe is not None and checks:
            alive, checked_at = probe.is_alive(), time.monotonic()
            trouble = probe.trouble if alive else ""
        # What is written during the first reading is not waited for.
        size = 0 if keeps_up else _size(run)
        events = reader.read()
        grows = bool(events)
        left = max(0, (_size(run) if keeps_up else size) - reader.offset) if events else 0
        # Once the end was reached, more is left only if this program was suspended.
        keeps_up = left <= (SLACK_BYTES if keeps_up else 0)
        share = None if keeps_up else reader.offset / (reader.offset + left)
        yield Batch(events, reader.offset, left, share, alive, checks, trouble)


def _size(run: RunDir) -> int:
    try:
        return os.stat(run.journal).st_size
    except OSError:
        return 0
