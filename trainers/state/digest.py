"""A digest: a bounded summary of a run's journal up to a byte offset, in the run directory's file `digest`.

Reading the digest and then the journal from its offset gives the same state as reading the whole journal, at a cost
that does not grow with the run: to the resolution of its curves, and for as many samples, log lines and evaluations as
it keeps (`tuiapp.trainers.state.digest_keeper`).

The journal remains authoritative. A digest that is missing, damaged, of another version or of another journal is
ignored: `read_digest` returns None, and readers read everything. The file holds `MAGIC`, which ends with the format's
version, the CRC-32 of the rest as a little-endian uint32, and `_Stored` as MessagePack.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from tuiapp.trainers.config.files import open_regular, replace_unsynced, reread
from tuiapp.trainers.contract import events as ev
from tuiapp.trainers.contract.events import AnyEvent, Event, Metrics, decode
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.metrics import TEST_ACCURACY, TEST_LOSS, evaluation_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.epochs import Epoch
from tuiapp.trainers.state.history import Gaps
from tuiapp.trainers.state.timeline import Timeline
from tuiapp.trainers.state.totals import Totals

if TYPE_CHECKING:
    from tuiapp.trainers.state.curves import Curves
    from tuiapp.trainers.state.series import Series

MAGIC = b"tuiapp-digest 5\n"
MAX_BYTES = 128 << 20
"""A longer file is no digest."""

_LOGGED = (
    ev.RunStarted, ev.Node, ev.RankStarted, ev.TelemetrySource, ev.LogLine, ev.Alert, ev.StopRequested,
    ev.CheckpointRequested, ev.ProfileRequested, ev.Checkpoint, ev.InitialWeights, ev.RankFailed, ev.RunEnded,
)  # fmt: skip

_CRC = struct.Struct("<I")


@dataclass(slots=True)
class Digest:
    offset: int
    """Just after a newline: where the rest of the journal begins."""
    events: list[AnyEvent]
    """The kept events other than curves, in order."""
    curves: dict[tuple[int, str], Series] = field(default_factory=dict)
    """By rank and metric. `events` holds a few of the values as well."""
    utilization: dict[str, Series] = field(default_factory=dict)
    """GPU UUID → utilization by the step that the run had reached."""
    timeline: Timeline = field(default_factory=Timeline)
    totals: Totals = field(default_factory=Totals)
    gaps: Gaps = field(default_factory=Gaps)
    epochs: list[Epoch] = field(default_factory=list)
    forgotten: int = 0
    """Number of events shown in the log that are no longer in `events`."""


class _StoredCurve(msgspec.Struct, array_like=True):
    rank: int
    name: str
    width: int
    steps: tuple[int, int]
    keys: bytes
    """As in `Series.parts`; numbers are little-endian."""
    table: bytes


class _Stored(msgspec.Struct, array_like=True):
    offset: int
    line_bytes: int
    """Length of the journal's last line before the offset; `line_crc` is its checksum."""
    line_crc: int
    events: bytes
    """Lines of the journal."""
    curves: list[_StoredCurve]
    utilization: list[_StoredCurve]
    steps: bytes
    """Of the timeline, as `times`, `timed`, `busy`, `start`, `base` and `end`."""
    times: bytes
    timed: bytes
    busy: bytes
    start: float | None
    base: float
    end: float
    totals: Totals
    gaps: list[tuple[int, int]]
    """Spans of steps that some rank lacks."""
    reached: dict[int, int]
    epochs: list[Epoch]
    logged: int


_decoder: msgspec.msgpack.Decoder[_Stored] = msgspec.msgpack.Decoder(_Stored)


def is_logged(event: AnyEvent | Event) -> bool:
    """Whether the log shows an event."""
    if isinstance(event, Metrics):
        # All ranks of a script may report the same evaluation.
        tested = TEST_LOSS in event.values or TEST_ACCURACY in event.values
        return event.rank == 0 and (tested or (not event.is_training and bool(evaluation_of(event.values)[0])))
    if isinstance(event, ev.Profile):
        # Those of the other ranks are much the same, and many.
        return event.rank == 0
    return isinstance(event, _LOGGED)


def write_digest(
    run: RunDir, offset: int, curves: Curves, totals: Totals, lines: Sequence[bytes], logged: int, last_line: bytes
) -> None:
    """Replaces a run's digest by that of `curves` and `lines`, kept events, up to the journal's `last_line`.

    Not synced: the checksums detect what a crash of the machine leaves incomplete. `logged` counts the events that the
    log shows. Raises OSError, for example on a full disk; the old digest stays.
    """
    timeline = curves.timeline
    data = msgspec.msgpack.encode(
        _Stored(
            offset=offset,
            line_bytes=len(last_line),
            line_crc=crc32(last_line),
            events=b"".join(lines),
            curves=[_StoredCurve(rank, name, *series.parts) for rank, name, series in curves],
            utilization=[_StoredCurve(0, uuid, *one.series.parts) for uuid, one in curves.utilization.items()],
            steps=timeline.steps.tobytes(),
            times=timeline.times.tobytes(),
            timed=timeline.timed.tobytes(),
            busy=timeline.busy.tobytes(),
            start=timeline.start,
            base=timeline.base,
            end=timeline.end,
            totals=totals,
            gaps=curves.gaps.found,
            reached=curves.gaps.last,
            epochs=curves.epochs.stored,
            logged=logged,
        )
    )
    replace_unsynced(run.digest, MAGIC + _CRC.pack(crc32(data)), data)


def read_digest(run: RunDir) -> Digest | None:
    """Reads a run's digest if it is complete and belongs to its journal; never raises for its content."""
    try:
        data = memoryview(reread(lambda: _read(run.digest, 0, MAX_BYTES + 1)))
        return _parse(run, data) if len(data) <= MAX_BYTES else None
    except (OSError, ValueError, struct.error, msgspec.MsgspecError):
        return None


def read_run(run: RunDir) -> Iterator[Digest | AnyEvent]:
    """Yields a run's digest, if it has one, and the events after it, up to the journal's present end."""
    digest = read_digest(run)
    if digest is not None:
        yield digest
    yield from JournalReader(run.journal, digest.offset if digest else 0).rest()


def _parse(run: RunDir, data: memoryview) -> Digest | None:
    """Raises struct.error, ValueError or msgspec.MsgspecError if it is no digest."""
    start = len(MAGIC) + _CRC.size
    if data[: len(MAGIC)] != MAGIC or _CRC.unpack(data[len(MAGIC) : start])[0] != crc32(data[start:]):
        return None
    stored = _decoder.decode(data[start:])
    if not _belongs(run, stored):
        return None
    timeline = Timeline()
    timeline.steps, timeline.times = array("q", stored.steps), array("d", stored.times)
    timeline.timed, timeline.busy = array("d", stored.timed), array("d", stored.busy)
    timeline.start, timeline.base, timeline.end = stored.start, stored.base, stored.end
    gaps = Gaps()
    gaps.found, gaps.last = stored.gaps, stored.reached
    events = [event for line in stored.events.splitlines() if (event := decode(line)) is not None]
    return Digest(
        offset=stored.offset,
        events=events,
        curves={(one.rank, one.name): _load(one) for one in stored.curves},
        utilization={one.name: _load(one) for one in stored.utilization},
        timeline=timeline,
        totals=stored.totals,
        gaps=gaps,
        epochs=stored.epochs,
        forgotten=max(0, stored.logged - sum(map(is_logged, events))),
    )


def _belongs(run: RunDir, stored: _Stored) -> bool:
    """Whether the journal still has the line that was last when the digest was made."""
    line = _read(run.journal, stored.offset - stored.line_bytes, stored.line_bytes)
    return len(line) == stored.line_bytes and crc32(line) == stored.line_crc


def _read(path: Path, start: int, length: int) -> bytes:
    """Reads up to `length` bytes of a file. Raises OSError if it cannot be read."""
    fd = open_regular(path)
    try:
        length = min(length, max(0, os.fstat(fd).st_size - start))
        data = os.pread(fd, length, start)
        # An error in the middle shows only at the next read.
        while len(data) < length and (more := os.pread(fd, length - len(data), start + len(data))):
            data += more
        return data
    finally:
        os.close(fd)


def _load(stored: _StoredCurve) -> Series:
    """Raises ValueError if its parts do not fit each other."""
    from tuiapp.trainers.state.series import Series  # with NumPy

    return Series.of(stored.width, stored.steps, stored.keys, stored.table)
