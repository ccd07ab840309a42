"""A run's digest: its folded state up to a byte offset of the journal, in the run directory's file `digest`.

Reading it, and then the journal from its offset, gives the state that the whole journal gives, at a cost that does not
grow with the run. The journal stays the truth: a digest that is missing, damaged, of another version or of another
journal is none.

The file holds `MAGIC`, which ends with the format's version, the CRC-32 of the rest as a little-endian uint32, and
`_Stored` as MessagePack.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin
from zlib import crc32

import msgspec

from tuiapp.trainers.config.files import open_regular, replace_unsynced, reread
from tuiapp.trainers.contract.events import Alert, Checkpoint
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import curves
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.readings import HISTORY
from tuiapp.trainers.state.run_state import MAX_ALERTS, MAX_CHECKPOINTS, MAX_LOG_LINES, LogEntry, RunState

MAGIC = b"tuiapp-digest 7\n"
MAX_BYTES = 256 << 20
"""A longer file is no digest."""

BUCKETS = 2048
"""Most per curve: more than a terminal has dots across."""
ALL_BUCKETS = 65_536
"""Most buckets of all curves together, as far as each has the least."""
LOG_BYTES = 2 << 20

_LENGTHS = {Checkpoint: MAX_CHECKPOINTS, Alert: MAX_ALERTS, LogEntry: MAX_LOG_LINES, float | None: HISTORY}
"""What a bounded sequence holds -> its most items."""

_CRC = struct.Struct("<I")


class Snapshot(NamedTuple):
    state: RunState
    offset: int
    """Just after a newline: where the rest of the journal begins."""


class _Stored(msgspec.Struct, array_like=True):
    offset: int
    line_bytes: int
    """Length of the journal's last line before the offset; `line_crc` is its checksum."""
    line_crc: int
    state: RunState


def new_state() -> RunState:
    """Returns the state that a digest is made of: its curves have few enough buckets."""
    return RunState(curves=Curves(closest=BUCKETS, most=ALL_BUCKETS))


def save(run: RunDir, state: RunState, offset: int, last_line: bytes) -> int:
    """Replaces a run's digest by a state of `new_state`, up to the journal's `last_line`; returns its size in bytes.

    Not synced: the checksums detect what a crash of the machine leaves incomplete. Raises OSError, for example on a
    full disk; the old digest stays.
    """
    size = sum(len(entry.text) for entry in state.log)
    while size > LOG_BYTES:
        size -= len(state.log.popleft().text)
    stored = _Stored(offset, len(last_line), crc32(last_line), state)
    data = msgspec.msgpack.encode(
        stored, enc_hook=lambda value: value.stored if hasattr(value, "stored") else list(value)
    )
    head = MAGIC + _CRC.pack(crc32(data))
    replace_unsynced(run.digest, head, data)
    return len(head) + len(data)


def load(run: RunDir) -> Snapshot | None:
    """Reads a run's digest if it is whole and belongs to its journal; never raises for its content."""
    try:
        data = memoryview(reread(lambda: _read(run.digest, 0, MAX_BYTES + 1)))
        return _parse(run, data) if len(data) <= MAX_BYTES else None
    except (OSError, ValueError, TypeError, struct.error, msgspec.MsgspecError):
        return None


def load_to_watch(run: RunDir) -> Snapshot | None:
    """Loads a snapshot with room for as many buckets as a view has."""
    snapshot = load(run)
    if snapshot is not None:
        snapshot.state.curves.extend(curves.BUCKETS, curves.ALL_BUCKETS)
    return snapshot


def read_run(run: RunDir) -> RunState:
    """Returns what a run has come to by its journal's present end."""
    snapshot = load_to_watch(run) or Snapshot(RunState(), 0)
    for event in JournalReader(run.journal, snapshot.offset).rest():
        apply(snapshot.state, event)
    return snapshot.state


def _parse(run: RunDir, data: memoryview) -> Snapshot | None:
    """Raises struct.error, ValueError, TypeError or msgspec.MsgspecError if it is no digest."""
    start = len(MAGIC) + _CRC.size
    if data[: len(MAGIC)] != MAGIC or _CRC.unpack(data[len(MAGIC) : start])[0] != crc32(data[start:]):
        return None
    stored = msgspec.msgpack.decode(data[start:], type=_Stored, dec_hook=_restored)
    # The digest belongs to the journal that still has the line which was the last one then.
    line = _read(run.journal, stored.offset - stored.line_bytes, stored.line_bytes)
    belongs = len(line) == stored.line_bytes and crc32(line) == stored.line_crc
    return Snapshot(stored.state, stored.offset) if belongs else None


def _restored(kind: Any, stored: Any) -> Any:
    if get_origin(kind) is deque:
        (item,) = get_args(kind)
        return deque([msgspec.convert(element, item) for element in stored], _LENGTHS.get(item))
    return stored if kind is object else kind.restored(stored)


def _read(path: Path, start: int, length: int) -> bytes:
    """Reads up to `length` bytes of a file. Raises OSError if it cannot be read."""
    fd = open_regular(path)
    try:
        length = min(length, max(0, os.fstat(fd).st_size - start))
        data = os.pread(fd, length, start)
        # An error in the middle shows only at the next read.
        while len(data) < length and (chunk := os.pread(fd, length - len(data), start + len(data))):
            data += chunk
        return data
    finally:
        os.close(fd)
