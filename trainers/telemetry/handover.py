"""What a sampler is given: settings, as JSON in its only argument, and a page that outlives it if it crashes or hangs.

The page is anonymous shared memory (a memfd) that the supervisor makes and each sampler inherits. A sampler writes a
library's name there before it calls into it; the supervisor only reads.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from typing import NamedTuple

import msgspec

_CALL = struct.Struct("<dd16s")
"""Start of the call, time limit, library; a start of 0: no call."""


class Call(NamedTuple):
    library: str
    since: float
    """The start of the call, on the monotonic clock."""
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


class SamplerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run_dir: str
    """The run's directory, whose disk is sampled."""
    ranks: dict[int, int] = {}
    gpus: str = ""
    """GPUs as in CUDA_VISIBLE_DEVICES: indices or UUIDs; "all"; "" for none."""
    interval_s: float = 1.0
    energy: dict[str, float] = {}
    """GPU → joules that earlier samplers have counted."""
    handover_fd: int | None = None
    """An inherited `Handover`."""
    left_alone: dict[str, float] = {}
    """Libraries not to be called, each until a time on the monotonic clock."""


def encode_config(config: SamplerConfig) -> str:
    """Encodes it as a command-line argument."""
    # Unlike msgspec's, this JSON holds a directory whose name is no UTF-8.
    return json.dumps(msgspec.to_builtins(config, str_keys=True))


def decode_config(argument: str) -> SamplerConfig:
    """Decodes the argument."""
    return msgspec.convert(json.loads(argument), SamplerConfig, str_keys=True)
