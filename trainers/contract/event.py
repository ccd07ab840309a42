"""What all events have in common."""

from __future__ import annotations

from time import monotonic
from time import time as wall_time

import msgspec


class Event(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, gc=False):
    """Fields common to all events, which are never part of a cycle: the garbage collector skips them."""

    seq: int = 0
    """1, 2, 3 … in the journal; 0 before the writer has numbered it."""
    time: float = msgspec.field(default_factory=wall_time)
    """Seconds since the epoch, in the process where it happened."""
    mono: float = msgspec.field(default_factory=monotonic)
    """Seconds on the host's monotonic clock: orders events of one host even if its clock is set."""
