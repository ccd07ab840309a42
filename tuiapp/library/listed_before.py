"""What a list showed of runs that have ended, kept for the next list: a thousand of them take seconds to read anew.

A file of the user's cache directory for each directory of runs, which may be deleted: a line with the version that
wrote it, then one for each run. A run counts as it was while all that its line was read from is as it was: see `stamp`.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from tuiapp import __version__
from tuiapp.trainers.config.files import make_private, open_regular, reread, user_cache, write_atomically
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import RunInfo

MAX_FILE_BYTES = 64 << 20
MAX_LINE_BYTES = 64 << 10
"""A run that needs more, as one of hundreds of metrics, is read each time."""

SETTLED_S = 2.0
"""A file changed again so soon may have the same times: what is read until then is not kept."""

Times: TypeAlias = tuple[int, int, int]
"""A file's inode, size, and time of change in nanoseconds; zeros for one that is missing."""
Stamp: TypeAlias = tuple[Times, ...]
"""Those of a run's journal, what the user says of it, its run.toml and its lock, and of its directory.

A supervisor that takes the lock notes that in it; the other files that tell who has a run, or waits for it, come and go
in the directory.
"""

MISSING: Times = (0, 0, 0)

_STAMPED = tuple(file.name for file in (RunDir.journal, RunDir.about, RunDir.config, RunDir.lock))


class _Header(msgspec.Struct, frozen=True):
    version: str
    directory: str


class _Line(msgspec.Struct, frozen=True, array_like=True):
    stamp: Stamp
    info: RunInfo


def _path(kind: type[Any], value: Any) -> Any:
    # Asked about values of type object, too.
    return Path(value) if kind is Path else value


_header = msgspec.json.Decoder(_Header)
_line = msgspec.json.Decoder(_Line, dec_hook=_path)
_encoder = msgspec.json.Encoder(enc_hook=str)


def stamp(run: RunDir) -> Stamp:
    """Returns what changes when one of the files changes from which a list reads a run."""
    path = str(run.path)
    return (*[_times(f"{path}/{name}") for name in _STAMPED], _times(path))


def _times(path: str) -> Times:
    try:
        found = os.stat(path)
    except OSError:
        return MISSING
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def may_be_kept(stamp: Stamp, info: RunInfo) -> bool:
    """Whether a run, read just now after its stamp was taken, stays as it is while the stamp does."""
    has_ended = info.status in ("completed", "failed", "stopped") and not info.problem
    return has_ended and max(changed for _, _, changed in stamp) < time.time_ns() - SETTLED_S * 1e9


def read_kept(runs_dir: Path) -> dict[RunDir, tuple[Stamp, RunInfo]]:
    """Returns the runs of a directory that an earlier list has kept; those whose line is damaged are left out."""
    try:
        lines = reread(lambda: _read(_file(runs_dir))).splitlines()
        if not lines or _header.decode(lines[0]) != _header_of(runs_dir):
            return {}
    except (OSError, ValueError, RecursionError):
        return {}
    found = {}
    for line in lines[1:]:
        try:
            kept = _line.decode(line)
        except (ValueError, RecursionError):
            continue
        found[kept.info.directory] = (kept.stamp, kept.info)
    return found


def keep(runs_dir: Path, runs: Iterable[tuple[Stamp, RunInfo]]) -> None:
    """Keeps runs for `read_kept`, instead of those kept before; does nothing if they cannot be written."""
    file = _file(runs_dir)
    try:
        lines = [_encoder.encode(_header_of(runs_dir)), *filter(None, map(_encode, runs))]
        make_private(file.parent)
        write_atomically(file, b"\n".join(lines))
    except (OSError, ValueError):
        # They are read again next time.
        return


def _encode(run: tuple[Stamp, RunInfo]) -> bytes:
    try:
        line = _encoder.encode(_Line(*run))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return b""
    return line if len(line) <= MAX_LINE_BYTES else b""


def _read(file: Path) -> bytes:
    with open(open_regular(file), "rb") as opened:
        return opened.read(MAX_FILE_BYTES)


def _header_of(runs_dir: Path) -> _Header:
    return _Header(__version__, str(runs_dir))


def _file(runs_dir: Path) -> Path:
    return user_cache() / "runs" / f"{zlib.crc32(os.fsencode(runs_dir)):08x}.jsonl"
