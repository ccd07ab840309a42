"""What outlives a sampler: the library it was calling, and the energy counted so far.

An anonymous page of shared memory (a memfd) that the supervisor makes and each sampler inherits. A sampler writes the
library's name before it calls into it, so that a crash or hang there can be attributed. Only one sampler writes at a
time; the supervisor only reads.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

_CALL = struct.Struct("<dd16s")
"""Start of the call, time limit, library; a start of 0: no call."""
_ENERGY = struct.Struct("<64sdQd")
"""GPU, joules, the driver's counter in mJ, when."""
SLOTS = 100
SIZE = _CALL.size + SLOTS * _ENERGY.size


class Call(NamedTuple):
    library: str
    since: float
    """On the monotonic clock."""
    limit_s: float


class Energy(NamedTuple):
    joules: float
    counter_mj: int
    """The driver's figure at that point; 0: it has none."""
    mono: float


class Handover:
    """The page, seen from either side; without a memfd it makes one."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("tuiapp-telemetry")
            os.ftruncate(fd, SIZE)
        self.fd = fd
        self._page = mmap.mmap(fd, SIZE)
        self._slots: dict[str, int] = {}

    def enter(self, library: str, now: float, limit_s: float) -> None:
        _CALL.pack_into(self._page, 0, now, limit_s, library.encode())

    def leave(self) -> None:
        _CALL.pack_into(self._page, 0, 0.0, 0.0, b"")

    def call(self) -> Call | None:
        since, limit_s, library = _CALL.unpack_from(self._page, 0)
        return Call(library.rstrip(b"\0").decode(), since, limit_s) if since else None

    def energy(self, uuid: str) -> Energy | None:
        slot = self._slot(uuid)
        if slot is None:
            return None
        _, joules, counter, mono = _ENERGY.unpack_from(self._page, slot)
        return Energy(joules, counter, mono) if mono else None

    def keep(self, uuid: str, energy: Energy) -> None:
        slot = self._slot(uuid)
        if slot is not None:
            _ENERGY.pack_into(self._page, slot, uuid.encode()[:64], *energy)

    def _slot(self, uuid: str) -> int | None:
        """Offset of a GPU's energy; None if all places are taken."""
        if (known := self._slots.get(uuid)) is not None:
            return known
        key = uuid.encode()[:64].ljust(64, b"\0")
        for offset in range(_CALL.size, SIZE, _ENERGY.size):
            if self._page[offset : offset + 64] in (key, b"\0" * 64):
                return self._slots.setdefault(uuid, offset)
        return None

    def close(self) -> None:
        self._page.close()
        os.close(self.fd)
