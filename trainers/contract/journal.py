"""The journal: append-only, one JSON event per line, a single writer, any number of readers.

The writer appends whole batches with one `write`; the next writer cuts off a last line torn by a crash, and readers
skip it. A full disk does not stop training: what could not be written waits in memory, bounded, until there is room
again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import open_regular, opened
from tuiapp.trainers.contract.events import AnyEvent, Event, decode, encode

READ_BYTES = 1 << 20

MAX_LINE_BYTES = 16 << 20
"""A longer line is no event: readers drop it."""

MAX_DAMAGE_BYTES = 64 << 20
"""Without a newline: beyond so much, holes of the file not counted, readers take it for the journal's end."""

MAX_PENDING_BYTES = 64 << 20
"""Limit of what waits in memory while the disk is full; beyond that events are dropped and counted."""


class _Numbered(msgspec.Struct):
    seq: int


_numbered = msgspec.json.Decoder(_Numbered)


class JournalWriter:
    """Appends events to a journal, made with mode 0600 or its torn tail cut off.

    Raises OSError if it cannot be opened for appending, or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self._fd = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._seq = _cut_torn_tail(self._fd)
        self.offset = os.fstat(self._fd).st_size
        self.on_line: Callable[[Event, bytes], None] | None = None
        """Called with each event and its line, as soon as it is sure to be written once the disk has room."""
        self._pending = bytearray()
        self._unsynced = False
        self._synced_at = time.monotonic()
        self.blocked: OSError | None = None
        """Why the last write failed; None if everything is written."""
        self.dropped = 0
        """Events lost because the disk stayed full."""
        self.sync_failed: OSError | None = None
        """Why a sync once failed, as over a quota of NFS: a later success does not prove that the disk has it all."""

    def append(self, events: Iterable[Event], *, durable: bool = False) -> None:
        """Numbers and writes events; with `durable` the disk has them on return, else within a second of `sync_due`."""
        for event in events:
            numbered = msgspec.structs.replace(event, seq=self._seq + 1)
            line = encode(numbered)
            if self.blocked and len(self._pending) + len(line) > MAX_PENDING_BYTES:
                self.dropped += 1
                continue
            self._seq += 1
            self._pending += line
            if self.on_line is not None:
                self.on_line(numbered, line)
        self.flush()
        if durable:
            self.sync()

    def flush(self) -> None:
        """Writes what waits; on failure keeps it and sets `blocked`."""
        while self._pending:
            try:
                written = os.write(self._fd, self._pending)
            except OSError as error:
                self.blocked = error
                return
            del self._pending[:written]
            self.offset += written
            self._unsynced = True
        self.blocked = None

    def sync(self) -> None:
        if self._unsynced:
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self.sync_failed = error
            self._unsynced = False
        self._synced_at = time.monotonic()

    def sync_due(self) -> None:
        """Syncs if the last sync is a second or more ago."""
        if time.monotonic() - self._synced_at >= 1.0:
            self.sync()

    @property
    def waiting_bytes(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        self.flush()
        self.sync()
        os.close(self._fd)


class JournalReader:
    """Reads a journal that may be missing or growing, from `offset`. Never raises for its content.

    Lines that begin as one of `skipped` are not decoded.
    """

    def __init__(
        self, path: Path, offset: int = 0, chunk_bytes: int = READ_BYTES, skipped: tuple[bytes, ...] = ()
    ) -> None:
        self._path, self._chunk_bytes, self._skipped = path, chunk_bytes, skipped
        self.offset = offset
        """Just after a newline, so that a torn tail that a new writer cuts off is never half read."""

    def read(self) -> list[AnyEvent]:
        """Returns the events of the next chunk that has any; none only if there is nothing new."""
        with contextlib.suppress(OSError), opened(self._path) as fd:
            while lines := self._next_lines(fd):
                wanted = (line for line in lines if not line.startswith(self._skipped))
                if events := [event for line in wanted if (event := decode(line)) is not None]:
                    return events
        return []

    def rest(self) -> Iterator[AnyEvent]:
        """Yields the events up to the present end: what is appended meanwhile may outpace a slow disk."""
        try:
            end = os.stat(self._path).st_size
        except OSError:
            return
        while self.offset < end and (events := self.read()):
            yield from events

    def _next_lines(self, fd: int) -> list[bytes]:
        size = self._chunk_bytes
        while data := os.pread(fd, size, self.offset):
            if end := data.rfind(b"\n") + 1:
                self.offset += end
                return data[:end].splitlines()
            if len(data) < size:
                return []
            if size <= MAX_LINE_BYTES:
                size *= 2
            elif after := _next_newline(fd, self.offset + size):
                # Damage: no event is that long.
                self.offset, size = after, self._chunk_bytes
            else:
                # Perhaps a torn tail, which the next writer cuts off.
                return []
        return []


def journal_end(path: Path) -> int:
    """Returns the end of a journal's last complete line: later events follow it."""
    try:
        fd = open_regular(path)
    except OSError:
        return 0
    try:
        return _after_last_newline(fd)
    finally:
        os.close(fd)


def last_line(path: Path) -> bytes:
    """Returns the last complete line of a journal; b"" if there is none, or it cannot be read."""
    with contextlib.suppress(OSError), opened(path) as fd:
        return next(lines_back(fd, MAX_LINE_BYTES), b"")
    return b""


def line_start(kind: type[Event]) -> bytes:
    """Returns how the lines of a kind of event begin: the type comes first on every line."""
    return f'{{"type":"{kind.__struct_config__.tag}",'.encode()


def lines_back(fd: int, limit_bytes: int, damage_bytes: int = MAX_DAMAGE_BYTES) -> Iterator[bytes]:
    """Yields the complete lines of a journal from last to first, without a torn tail and lines over `limit_bytes`.

    Ends where `damage_bytes` have no newline.
    """
    end = newline = os.fstat(fd).st_size
    unfinished: bytes | None = None
    """Read part of the line whose start is being searched; None if it is unwanted, like a torn tail."""
    while end > 0 and newline - end < damage_bytes:
        begin = max(0, end - min(limit_bytes, READ_BYTES))
        first, *lines = os.pread(fd, end - begin, begin).split(b"\n")
        if lines:
            if unfinished is not None and len(lines[-1]) + len(unfinished) <= limit_bytes:
                yield lines[-1] + unfinished
            yield from reversed(lines[:-1])
            unfinished, newline = first, begin
        elif unfinished is not None:
            unfinished = first + unfinished if len(first) + len(unfinished) <= limit_bytes else None
        end = begin
    if unfinished is not None and end <= 0:
        yield unfinished


def _cut_torn_tail(fd: int) -> int:
    """Cuts off what follows the last newline; returns the last event's number, 0 in an empty journal."""
    end = _after_last_newline(fd)
    if end < os.fstat(fd).st_size:
        os.ftruncate(fd, end)
    for line in lines_back(fd, MAX_LINE_BYTES):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _numbered.decode(line).seq
    return 0


def _next_newline(fd: int, start: int) -> int:
    """Returns the place after the next newline, 0 if there is none within `MAX_DAMAGE_BYTES` beside holes."""
    left = MAX_DAMAGE_BYTES
    while left > 0 and (start := _after_hole(fd, start)) and (data := os.pread(fd, READ_BYTES, start)):
        if end := data.find(b"\n") + 1:
            return start + end
        start += len(data)
        left -= len(data)
    return 0


def _after_hole(fd: int, start: int) -> int:
    """Returns where the next data are in a sparse file, 0 if there are none."""
    try:
        return os.lseek(fd, start, os.SEEK_DATA)
    except OSError as error:
        return 0 if error.errno == errno.ENXIO else start


def _after_last_newline(fd: int) -> int:
    """Returns the place after the last newline, 0 if there is none; what follows may have any length."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - READ_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
