"""A digest: a bounded summary of a run's journal up to a byte offset, in the run directory's file `digest`.

Reading the digest and then the journal from its offset gives the same state as reading the whole journal, at a cost
that does not grow with the run: to the resolution of its curves, and for as many samples, log lines and evaluations as
it keeps (`trainers.contract.digest_keeper`).

The journal remains authoritative. A digest that is missing, damaged, of another version or of another journal is
ignored: `read_digest` returns None, and readers read everything. The file holds, in this order,

  - `MAGIC`, which ends with the format's version;
  - the CRC-32 of all that follows the next field, and the length of the heading: two little-endian uint32;
  - the heading, `_Heading` as MessagePack;
  - kept events, as lines of the journal;
  - the columns of each curve, see `Curve`; the timeline's steps and times. Numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from trainers.config.files import open_regular
from trainers.contract import events as ev
from trainers.contract.curve import Curve, Timeline
from trainers.contract.effort import Effort
from trainers.contract.events import AnyEvent, Event, Metrics, decode
from trainers.contract.gaps import Gaps
from trainers.contract.metrics import TEST_ACCURACY, TEST_LOSS
from trainers.contract.rundir import RunDir

MAGIC = b"tuiapp-digest 1\n"
MAX_BYTES = 64 << 20
"""A longer file is no digest."""

_LOGGED = (
    ev.RunStarted, ev.RankStarted, ev.TelemetrySource, ev.LogLine, ev.Alert, ev.Stacks, ev.StopRequested,
    ev.CheckpointRequested, ev.Checkpoint, ev.RankFailed, ev.RunEnded,
)  # fmt: skip

_LENGTHS = struct.Struct("<II")


@dataclass(slots=True)
class Digest:
    offset: int
    """Just after a newline: where the rest of the journal begins."""
    events: list[AnyEvent]
    """The kept events other than curves, in order."""
    curves: dict[tuple[int, str], Curve] = field(default_factory=dict)
    """By rank and metric. `events` holds a few of the values as well."""
    utilization: dict[str, Curve] = field(default_factory=dict)
    """GPU UUID → utilization by the step that the run had reached."""
    timeline: Timeline = field(default_factory=Timeline)
    effort: Effort = field(default_factory=Effort)
    gaps: Gaps = field(default_factory=Gaps)
    forgotten: int = 0
    """Number of events shown in the log that are no longer in `events`."""


class _CurveHeading(msgspec.Struct, array_like=True):
    rank: int
    name: str
    size: int
    width: int
    first_step: int
    last_step: int


class _Heading(msgspec.Struct, array_like=True):
    offset: int
    line_bytes: int
    """Length of the journal's last line before the offset; `line_crc` is its checksum."""
    line_crc: int
    events_bytes: int
    curves: list[_CurveHeading]
    utilization: list[_CurveHeading]
    marks: int
    """Of the timeline, as `start` and `base`."""
    start: float | None
    base: float
    effort: Effort
    gaps: list[tuple[int, int]]
    """Spans of steps that some rank lacks."""
    reached: dict[int, int]
    logged: int


_headings: msgspec.msgpack.Decoder[_Heading] = msgspec.msgpack.Decoder(_Heading)

_C = TypeVar("_C", bound="array[int] | array[float]")


def is_logged(event: AnyEvent | Event) -> bool:
    """Whether the log shows an event."""
    if isinstance(event, Metrics):
        # All ranks of a script may report the same evaluation.
        return event.rank == 0 and (TEST_LOSS in event.values or TEST_ACCURACY in event.values)
    return isinstance(event, _LOGGED)


def write_digest(run: RunDir, digest: Digest, lines: Sequence[bytes], logged: int, last_line: bytes) -> None:
    """Replaces a run's digest by that of `lines`, kept events, up to the journal's `last_line`.

    Not synced: the checksums detect what a crash of the machine leaves incomplete. Of `digest`, `events` and
    `forgotten` are ignored; `logged` counts the events that the log shows. Raises OSError, for example on a full disk;
    the old digest stays.
    """
    curves, timeline = digest.curves, digest.timeline
    events = b"".join(lines)
    heading = msgspec.msgpack.encode(
        _Heading(
            offset=digest.offset,
            line_bytes=len(last_line),
            line_crc=crc32(last_line),
            events_bytes=len(events),
            curves=[_heading_of(curve, rank, name) for (rank, name), curve in curves.items()],
            utilization=[_heading_of(curve, 0, uuid) for uuid, curve in digest.utilization.items()],
            marks=len(timeline.steps),
            start=timeline.start,
            base=timeline.base,
            effort=digest.effort,
            gaps=digest.gaps.found,
            reached=digest.gaps.last,
            logged=logged,
        )
    )
    parts: list[bytes | array[int] | array[float]] = [heading, events]
    for curve in chain(curves.values(), digest.utilization.values()):
        parts += curve.columns
    parts += [timeline.steps, timeline.times]
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    # Only the run's supervisor writes it: a file left incomplete by a kill is overwritten the next time.
    new = run.digest.with_name("digest.new")
    fd = open_regular(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with open(fd, "wb", closefd=True) as file:
            file.write(MAGIC + _LENGTHS.pack(crc, len(heading)))
            file.writelines(parts)
        os.replace(new, run.digest)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def read_digest(run: RunDir) -> Digest | None:
    """Reads a run's digest if it is complete and belongs to its journal; never raises for its content."""
    try:
        data = memoryview(_read(run.digest, 0, MAX_BYTES + 1))
        return _parse(run, data) if len(data) <= MAX_BYTES else None
    except (OSError, ValueError, struct.error, msgspec.MsgspecError):
        return None


def _parse(run: RunDir, data: memoryview) -> Digest | None:
    """Raises struct.error or msgspec.MsgspecError if it is no digest."""
    start = len(MAGIC) + _LENGTHS.size
    if data[: len(MAGIC)] != MAGIC:
        return None
    crc, length = _LENGTHS.unpack(data[len(MAGIC) : start])
    if crc32(data[start:]) != crc:
        return None
    heading = _headings.decode(data[start : start + length])
    columns = _Columns(data[start + length :])
    lines = bytes(columns.take_bytes(heading.events_bytes)).splitlines()
    timeline = Timeline()
    curves = {(one.rank, one.name): _curve_of(one, columns) for one in heading.curves}
    utilization = {one.name: _curve_of(one, columns) for one in heading.utilization}
    timeline.steps, timeline.times = columns.take(array("q"), heading.marks), columns.take(array("d"), heading.marks)
    timeline.start, timeline.base = heading.start, heading.base
    if not _belongs(run, heading):
        return None
    gaps = Gaps()
    gaps.found, gaps.last = heading.gaps, heading.reached
    events = [event for line in lines if (event := decode(line)) is not None]
    return Digest(
        offset=heading.offset,
        events=events,
        curves=curves,
        utilization=utilization,
        timeline=timeline,
        effort=heading.effort,
        gaps=gaps,
        forgotten=max(0, heading.logged - sum(map(is_logged, events))),
    )


def _belongs(run: RunDir, heading: _Heading) -> bool:
    """Whether the journal still has the line that was last when the digest was made."""
    line = _read(run.journal, heading.offset - heading.line_bytes, heading.line_bytes)
    return len(line) == heading.line_bytes and crc32(line) == heading.line_crc


def _read(path: Path, start: int, length: int) -> bytes:
    """Reads up to `length` bytes of a file. Raises OSError if it cannot be read."""
    fd = open_regular(path)
    try:
        return os.pread(fd, min(length, max(0, os.fstat(fd).st_size - start)), start)
    finally:
        os.close(fd)


class _Columns:
    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take_bytes(self, length: int) -> memoryview:
        self._at += length
        return self._data[self._at - length : self._at]

    def take(self, column: _C, size: int) -> _C:
        """Fills a column."""
        column.frombytes(self.take_bytes(size * column.itemsize))
        return column


def _heading_of(curve: Curve, rank: int, name: str) -> _CurveHeading:
    return _CurveHeading(rank, name, len(curve), curve.width, curve.first_step, curve.last_step)


def _curve_of(heading: _CurveHeading, columns: _Columns) -> Curve:
    curve = Curve(capacity=max(1, heading.size))
    for column in curve.columns:
        columns.take(column, heading.size)
    curve.width, curve.first_step, curve.last_step = heading.width, heading.first_step, heading.last_step
    return curve
