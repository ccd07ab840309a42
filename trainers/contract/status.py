"""What a run has come to, in a file of its directory: lists of runs read it instead of the journal.

Whoever has the run's lock replaces `status.json` when something has changed, at most once a second. What is large of
it, as a script's configuration, stands in `facts.json`. Both may be deleted: the journal has all of it, and readers
fold what they lack (`tuiapp.trainers.state.status`).
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tuiapp.trainers.config.files import open_regular, replace_unsynced, reread
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import (
    JOURNAL_SCHEMA,
    Facts,
    Figures,
    Queued,
    RunStarted,
    Summary,
)
from tuiapp.trainers.contract.events import (
    Status as EndStatus,
)
from tuiapp.trainers.contract.rundir import RunDir

SCHEMA = 1
MAX_BYTES = 8 << 10
MAX_FACTS_BYTES = 16 << 20
MAX_TEXT_CHARACTERS = 300
"""Most characters of a reason or a blemish where the status would be longer than `MAX_BYTES`."""

T = TypeVar("T", "Status", "Details")


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the last attempt ended."""

    status: EndStatus
    reason: str
    time: float
    """Seconds since the epoch, as all times here."""
    transient: bool = False
    """Whether the first cause may pass by itself: a device, a node or the host's memory was missing."""
    node_lost: bool = False
    """Whether the first cause was a node that had joined and went out of reach."""


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all events of the journal's first `size` bytes come to."""

    schema: int
    journal: int = JOURNAL_SCHEMA
    """The journal's schema."""
    size: int = 0
    first_time: float | None = None
    """Time of the first event that is not of a wait in a queue."""
    time: float = 0.0
    """Time of the last event."""
    started: float | None = None
    """When the first attempt began."""
    begun: RunStarted | None = None
    """The last attempt's first event; of its `config` backend and global batch."""
    config: RunConfig | None = None
    """The configuration as in run.toml, while that file is as `config_is` says."""
    config_is: tuple[int, int] = (0, 0)
    """Size and time of change, in nanoseconds, of run.toml as it was read."""
    queued: Queued | None = None
    """While it waits."""
    end: End | None = None
    """While no further attempt has begun."""
    stop_asked: bool = False
    """Whether somebody has asked the last attempt to stop for good: a command, or a search."""
    stalled: str = ""
    """Why no rank makes progress; "" while they do."""
    rate: float | None = None
    """Examples per second by what each rank reported last."""
    summary: Summary = Summary()
    name: str = ""
    """The name that the script gives its run."""
    has_details: bool = False
    """Whether `facts.json` has more."""


NOTHING = Status(schema=SCHEMA)


class Details(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is too large for a status."""

    facts: Facts | None = None
    metrics: dict[str, Figures] = {}
    """All of the summary's, where the status has the first of them."""


def as_path(kind: type[Any], value: Any) -> Any:
    """Decodes what JSON has no type for, as a configuration's paths."""
    # Asked about values of type object, too.
    return Path(value) if kind is Path else value


_status: msgspec.json.Decoder[Status] = msgspec.json.Decoder(Status, dec_hook=as_path)
_details: msgspec.json.Decoder[Details] = msgspec.json.Decoder(Details, dec_hook=as_path)
encoder = msgspec.json.Encoder(enc_hook=str)


def read_status(run: RunDir) -> Status | None:
    """Reads a run's status; None if there is none, it is damaged, or of another version."""
    status = _read(run.status, _status, MAX_BYTES)
    return status if status is not None and status.schema == SCHEMA else None


def read_details(run: RunDir, status: Status) -> Details:
    """Reads what a status has no room for; nothing where it says that there is none."""
    details = _read(run.facts, _details, MAX_FACTS_BYTES) if status.has_details else None
    return details or Details()


def write_status(run: RunDir, status: Status, facts: Facts | None, written: Details) -> Details:
    """Replaces a run's status, and its details if they are others than those `written` last; returns the latter.

    Not synced: what a crash of the machine leaves is the journal. Raises OSError.
    """
    details = Details(facts=facts if facts and (facts.config or facts.summary or facts.total_steps) else None)
    data = encoder.encode(_marked(status, details))
    if len(data) > MAX_BYTES:
        details = replace(details, metrics=status.summary.metrics)
        data = _shortened(_marked(status, details))
    if details != written:
        replace_unsynced(run.facts, encoder.encode(details))
    replace_unsynced(run.status, data)
    return details


def _marked(status: Status, details: Details) -> Status:
    return replace(status, has_details=details != Details())


def _shortened(status: Status) -> bytes:
    """Encodes as much of a status as `MAX_BYTES` hold: metrics first, then what can be read elsewhere."""
    metrics = status.summary.metrics
    count = len(metrics)
    while len(data := encoder.encode(status)) > MAX_BYTES and count:
        count //= 2
        fewer = dict(islice(metrics.items(), count))
        status = replace(status, summary=replace(status.summary, metrics=fewer))
    if len(data) > MAX_BYTES:
        cut = [replace(blemish, text=blemish.text[:MAX_TEXT_CHARACTERS]) for blemish in status.summary.blemishes]
        status = replace(status, config=None, summary=replace(status.summary, blemishes=cut))
        status = replace(status, stalled=status.stalled[:MAX_TEXT_CHARACTERS])
        if status.end is not None:
            status = replace(status, end=replace(status.end, reason=status.end.reason[:MAX_TEXT_CHARACTERS]))
        data = encoder.encode(status)
    return data


def _read(path: Path, decoder: msgspec.json.Decoder[T], limit: int) -> T | None:
    def read() -> bytes:
        # Without `opened`, which costs 4 µs: a list of runs reads one of each.
        fd = open_regular(path)
        try:
            return os.pread(fd, limit + 1, 0)
        finally:
            os.close(fd)

    try:
        return decoder.decode(data) if len(data := reread(read)) <= limit else None
    except (OSError, ValueError, RecursionError):
        return None
