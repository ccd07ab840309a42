"""The journal: append-only, one JSON event a line, a single writer, any number of readers.

The writer appends whole batches with one `write`; what a crash left of a last line is cut off by the next writer and
skipped by readers. A disk that is full does not stop training: what could not be written waits in memory, bounded,
and is written when there is room again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from trainers.config.files import open_regular
from trainers.contract.events import AnyEvent, Event, decode, encode

READ_BYTES = 1 << 20
"""What is taken at a time."""

MAX_LINE_BYTES = 16 << 20
"""A longer line is no event: a reader drops it."""

HEAD_BYTES = 64 << 10
"""What is read of a journal for its first event."""

MAX_PENDING_BYTES = 64 << 20
"""What waits in memory while the disk is full; beyond that events are dropped and counted."""


class _Numbered(msgspec.Struct):
    """What is read of the last line, whose type a newer version may have written."""

    seq: int


_numbered = msgspec.json.Decoder(_Numbered)


class JournalWriter:
    """Appends events to a journal.

    Args:
        path: The journal's file; created with mode 0600, its torn tail cut off.

    Raises:
        OSError: it cannot be opened for appending, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self._fd = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._seq = _cut_torn_tail(self._fd)
        self.offset = os.fstat(self._fd).st_size
        """Where what is written ends, in bytes."""
        self.on_line: Callable[[Event, bytes], None] | None = None
        """Is given each event and its line, as soon as it is sure to be written if the disk has room again."""
        self._pending = bytearray()
        self._unsynced = False
        self._synced_at = time.monotonic()
        self.blocked: OSError | None = None
        """Why the last write failed; None when everything is written."""
        self.dropped = 0
        """Events lost because the disk stayed full."""
        self.sync_failed: OSError | None = None
        """Why the disk once could not be made to keep what is written. It does not say what it has kept, and a later
        success says nothing of it: nobody may claim then that nothing is lost."""

    def append(self, events: Iterable[Event], *, durable: bool = False) -> None:
        """Number the events and write them, with whatever still waited.

        Args:
            events: In the order in which they shall stand.
            durable: Do not return before the disk has them; otherwise it has them within a second of `sync_due`.
        """
        for event in events:
            line = encode(msgspec.structs.replace(event, seq=self._seq + 1))
            if self.blocked and len(self._pending) + len(line) > MAX_PENDING_BYTES:
                self.dropped += 1
                continue
            self._seq += 1
            self._pending += line
            if self.on_line is not None:
                self.on_line(event, line)
        self.flush()
        if durable:
            self.sync()

    def flush(self) -> None:
        """Write what waits; on failure keep it and say so in `blocked`."""
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
        """Wait until the disk has what is written."""
        if self._unsynced:
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self.sync_failed = error
            self._unsynced = False
        self._synced_at = time.monotonic()

    def sync_due(self) -> None:
        """Sync if the last one is a second or more ago."""
        if time.monotonic() - self._synced_at >= 1.0:
            self.sync()

    @property
    def waiting_bytes(self) -> int:
        """What could not be written yet."""
        return len(self._pending)

    def close(self) -> None:
        """Write and sync what there is, and close the file."""
        self.flush()
        self.sync()
        os.close(self._fd)


class JournalReader:
    """Reads a journal that may still be growing. Never raises for what stands in it.

    Args:
        path: The journal's file; it may not exist yet.
        offset: Where to begin: 0, or what `journal_end` gave.
        chunk_bytes: What it takes at a time.
    """

    def __init__(self, path: Path, offset: int = 0, chunk_bytes: int = READ_BYTES) -> None:
        self._path, self._chunk_bytes = path, chunk_bytes
        self._offset = offset
        """Always just after a newline, so that a torn tail that a new writer cuts off is never half taken."""
        self.skipped = 0
        """Lines that were no event this version knows."""

    @property
    def offset(self) -> int:
        """How far it has read, in bytes."""
        return self._offset

    def read(self) -> list[AnyEvent]:
        """The events of the next chunk; empty when there is nothing new yet."""
        try:
            fd = open_regular(self._path)
        except OSError:
            return []
        try:
            return self._read(fd)
        except OSError:
            return []
        finally:
            os.close(fd)

    def _read(self, fd: int) -> list[AnyEvent]:
        while lines := self._next_lines(fd):
            events = [event for line in lines if (event := decode(line)) is not None]
            self.skipped += len(lines) - len(events)
            if events:
                return events
        return []

    def _next_lines(self, fd: int) -> list[bytes]:
        """The whole lines of the next chunk."""
        size = self._chunk_bytes
        while True:
            data = os.pread(fd, size, self._offset)
            end = data.rfind(b"\n") + 1
            if len(data) > MAX_LINE_BYTES and not end:
                # Not an event but damage: step over it, to resume at the next newline.
                self._offset += len(data)
                self.skipped += 1
                return []
            if len(data) < size or end:
                break
            size *= 2
        self._offset += end
        return data[:end].splitlines()


def journal_end(path: Path) -> int:
    """Where the last whole line of a journal ends: what is written from now on stands after it."""
    try:
        fd = open_regular(path)
    except OSError:
        return 0
    try:
        return _after_last_newline(fd)
    finally:
        os.close(fd)


def last_line_with(path: Path, start: bytes) -> bytes:
    """The last line of a journal that begins with some bytes, b"" where none does; reads it from its end."""
    try:
        fd = open_regular(path)
    except OSError:
        return b""
    try:
        return _search_back(fd, b"\n" + start)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _search_back(fd: int, wanted: bytes) -> bytes:
    """The rest of the line, up to its end, whose newline before it and first bytes are `wanted`."""
    end = _after_last_newline(fd)
    while end > 0:
        begin = max(0, end - READ_BYTES)
        # A newline stands in front of the first line as well, so to say; and what is wanted may lie across two parts.
        part = os.pread(fd, end - begin + len(wanted), begin)
        part = b"\n" + part if not begin else part
        if (found := part.rfind(wanted)) >= 0:
            line_at = begin + found + (1 if begin else 0)
            return os.pread(fd, READ_BYTES, line_at).split(b"\n", 1)[0]
        end = begin
    return b""


def read_tail(path: Path, tail_bytes: int = 64 * 1024) -> list[AnyEvent]:
    """The events in the last part of a journal, without reading the rest; empty when there is none."""
    lines = _read_part(path, tail_bytes, from_end=True).split(b"\n")
    # The first piece may start within a line, the last one may be torn; neither decodes.
    return [event for line in lines if (event := decode(line)) is not None]


def read_first(path: Path) -> AnyEvent | None:
    """The first event of a journal; None when there is none, or it is of a kind that is not known."""
    line, newline, _ = _read_part(path, HEAD_BYTES).partition(b"\n")
    return decode(line) if newline else None


def _read_part(path: Path, limit_bytes: int, *, from_end: bool = False) -> bytes:
    """The first or the last bytes of a journal; none where there is none."""
    try:
        fd = open_regular(path)
    except OSError:
        return b""
    try:
        start = max(0, os.fstat(fd).st_size - limit_bytes) if from_end else 0
        return os.pread(fd, limit_bytes, start)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _cut_torn_tail(fd: int) -> int:
    """Cut off what stands after the last newline; give the last event's number, 0 in an empty journal."""
    end = _after_last_newline(fd)
    if end < os.fstat(fd).st_size:
        os.ftruncate(fd, end)
    window = READ_BYTES
    while end:
        start = max(0, end - window)
        for line in reversed(os.pread(fd, end - start, start).split(b"\n")):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return _numbered.decode(line).seq
        if not start or window >= MAX_LINE_BYTES:
            break
        window *= 2
    return 0


def _after_last_newline(fd: int) -> int:
    """Just after the last newline, 0 where there is none; what follows it may be of any length."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - READ_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
