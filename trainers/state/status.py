"""A run's status, however it is found: as its supervisor wrote it, or folded from the journal.

A run whose supervisor was killed, or that an older version wrote, is folded by its readers. Unless it is live they keep
the result in the user's cache directory, never in the run's; it may be deleted.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tuiapp.trainers.config.files import make_private, open_regular, read_limited, replace_unsynced, user_cache
from tuiapp.trainers.config.options import ConfigError, Problem
from tuiapp.trainers.config.run_config import MAX_FILE_BYTES, RunConfig, parse_toml
from tuiapp.trainers.contract import status as files
from tuiapp.trainers.contract.events import (
    JOURNAL_SCHEMA,
    Alert,
    Checkpoint,
    DeviceSample,
    Event,
    Facts,
    FrameworkMemory,
    Held,
    HostSample,
    LogLine,
    Metrics,
    Phase,
    Predictions,
    RankSample,
    RankStarted,
    RunEnded,
    Sharding,
    Stacks,
)
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter, last_line, line_start
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.status import NOTHING, Status
from tuiapp.trainers.state import snapshot
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.outcome import status_of
from tuiapp.trainers.state.snapshot import Snapshot

LATE_S = 15.0
"""A live run whose status is so much older than its journal has a supervisor that writes none."""
HEAD_BYTES = 16 << 10


_MANY = (LogLine, DeviceSample, HostSample, RankSample, FrameworkMemory, Sharding, Held, Stacks)
_NEEDLESS = tuple(line_start(kind) for kind in _MANY)
"""Kinds of events that say nothing of what a run comes to, and are many."""
_SUMMED_UP = tuple(line_start(kind) for kind in (Metrics, Alert, Phase, Predictions, RankStarted, Checkpoint))
"""Starts of the lines of events whose outcome the end of an attempt sums up."""


class Known(NamedTuple):
    status: Status
    facts: Facts | None = None
    """What a script says of its run."""


class _Opening(msgspec.Struct):
    type: str = ""
    schema: int = 1


class _Folded(msgspec.Struct, frozen=True):
    """What the cache keeps of a run."""

    directory: str
    inode: int
    status: Status
    facts: Facts | None


_opening = msgspec.json.Decoder(_Opening)
_folded = msgspec.json.Decoder(_Folded, dec_hook=files.as_path)


def read_config(run: RunDir) -> RunConfig:
    """Reads a run's configuration; raises ConfigError if it is damaged or of another version, OSError."""
    try:
        return parse_toml(read_limited(run.config, MAX_FILE_BYTES), str(run.config))[0]
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([Problem("", str(error))], str(run.config)) from None


def known(run: RunDir, liveness: Liveness | None = None) -> Known:
    """Returns what a run has come to; raises OSError if its journal is there and cannot be read.

    Whoever knows it passes its `liveness`, as it was before.
    """
    written, journal = files.read_status(run), _stat(run.journal)
    if journal is None:
        return Known(written or NOTHING)
    unread = journal.st_size - written.size if written else -1
    if written is not None and (not unread or (unread > 0 and _is_kept_current(run, liveness, journal))):
        details = files.read_details(run, written)
        if details.metrics:
            written = replace(written, summary=replace(written.summary, metrics=details.metrics))
        return Known(written, details.facts)
    if (kept := _read_kept(run, journal)) is not None:
        return kept
    folded = _fold(run)
    if not (liveness or run.liveness()).is_live:
        _keep(run, journal.st_ino, folded)
    return folded


def append_event(run: RunDir, event: Event) -> None:
    """Writes an event into the journal of a run whose lock the caller holds, and what that comes to. Raises OSError."""
    journal = JournalWriter(run.journal)
    journal.append([event], durable=True)
    journal.close()
    if journal.blocked:
        raise journal.blocked
    with contextlib.suppress(OSError):
        now = known(run, Liveness.NOBODY)
        files.write_status(run, now.status, now.facts, files.read_details(run, now.status))


def last_attempt(run: RunDir) -> int:
    """Returns how often a run was started or resumed; 0 if never."""
    if noted := run.lock_note().attempt:
        return noted
    with contextlib.suppress(OSError):
        begun = known(run).status.begun
        return begun.attempt if begun else 0
    return 0


def with_config(run: RunDir, status: Status) -> Status:
    """Adds the run's configuration, if it can be read."""
    try:
        # In this order: what is written meanwhile is read again.
        return replace(status, config_is=_config_is(run), config=read_config(run))
    except (OSError, ConfigError):
        return replace(status, config=None, config_is=(0, 0))


def config_of(run: RunDir, status: Status) -> RunConfig:
    """Returns a run's configuration; raises ConfigError, OSError as `read_config`."""
    return status.config if status.config and status.config_is == _config_is(run) else read_config(run)


def journal_schema(run: RunDir) -> int:
    """Returns the schema in the first line of a run's journal; this version's if it says none, or is damaged."""
    try:
        fd = open_regular(run.journal)
    except OSError:
        return JOURNAL_SCHEMA
    with open(fd, "rb") as file:
        line = file.readline(HEAD_BYTES)
    try:
        opening = _opening.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return JOURNAL_SCHEMA
    # A journal whose first line was lost is read as far as possible.
    return opening.schema if opening.type == "run-started" or opening.schema > JOURNAL_SCHEMA else JOURNAL_SCHEMA


def describe_schema(schema: int) -> str:
    """Says that a journal has another schema than this version's, in words; "" if it has not."""
    if schema == JOURNAL_SCHEMA:
        return ""
    read = f"this version of tuiapp reads {JOURNAL_SCHEMA}: update tuiapp to see it"
    return f"its journal has schema {schema}, {read}"


def _config_is(run: RunDir) -> tuple[int, int]:
    info = os.stat(run.config)
    return info.st_size, info.st_mtime_ns


def _stat(journal: Path) -> os.stat_result | None:
    """Returns what the file system says of a journal; None if there is none. Raises OSError if it cannot be read."""
    try:
        info = os.lstat(journal)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(info.st_mode):
        os.close(open_regular(journal))  # raises
    return info


def _is_kept_current(run: RunDir, liveness: Liveness | None, journal: os.stat_result) -> bool:
    """Whether somebody writes a run's status who has its lock: it is as new as anybody must know it."""
    if (liveness or run.liveness()) not in (Liveness.HELD, Liveness.ELSEWHERE):
        return False
    with contextlib.suppress(OSError):
        return journal.st_mtime - os.stat(run.status).st_mtime < LATE_S
    return False


def _fold(run: RunDir) -> Known:
    if (schema := journal_schema(run)) != JOURNAL_SCHEMA:
        return Known(replace(NOTHING, journal=schema))
    state, offset = snapshot.load(run) or Snapshot(snapshot.new_state(), 0)
    ended = last_line(run.journal).startswith(line_start(RunEnded))
    reader = JournalReader(run.journal, offset, skipped=_NEEDLESS + _SUMMED_UP if ended else _NEEDLESS)
    for event in reader.rest():
        apply(state, event)
    return Known(with_config(run, status_of(state, reader.offset)), state.facts)


def _read_kept(run: RunDir, journal: os.stat_result) -> Known | None:
    try:
        kept = _folded.decode(read_limited(_kept_file(run), files.MAX_FACTS_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    same = (kept.directory, kept.inode, kept.status.schema) == (str(run.path), journal.st_ino, files.SCHEMA)
    return Known(kept.status, kept.facts) if same and kept.status.size == journal.st_size else None


def _keep(run: RunDir, inode: int, folded: Known) -> None:
    file = _kept_file(run)
    # Where it cannot be kept, it is folded again.
    with contextlib.suppress(OSError, ValueError):
        make_private(file.parent)
        replace_unsynced(file, files.encoder.encode(_Folded(str(run.path), inode, *folded)))


def _kept_file(run: RunDir) -> Path:
    return user_cache() / "folded" / f"{zlib.crc32(os.fsencode(run.path)):08x}.json"
