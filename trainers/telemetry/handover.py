"""What outlives a sampler that crashes or hangs: the library it was calling.

An anonymous page of shared memory (a memfd) that the supervisor makes and each sampler inherits. A sampler writes the
library's name before it calls into it; the supervisor only reads.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

_CALL = struct.Struct("<dd16s")
"""Start of the call, time limit, library; a start of 0: no call."""


class Call(NamedTuple):
    library: str
    since: float
    """On the monotonic clock."""
    limit_s: float


class Handover:
    """The page, seen from either side; without a memfd it makes one."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("tuiapp-telemetry")
            os.ftruncate(fd, _CALL.size)
        self.fd = fd
        self._page = mmap.mmap(fd, _CALL.size)

    def enter(self, library: str, now: float, limit_s: float) -> None:
        _CALL.pack_into(self._page, 0, now, limit_s, library.encode())

    def leave(self) -> None:
        _CALL.pack_into(self._page, 0, 0.0, 0.0, b"")

    def call(self) -> Call | None:
        since, limit_s, library = _CALL.unpack_from(self._page, 0)
        return Call(library.rstrip(b"\0").decode(), since, limit_s) if since else None

    def close(self) -> None:
        self._page.close()
        os.close(self.fd)
