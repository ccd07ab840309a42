"""Reads scalars, pictures and texts from TensorBoard's event files while a script writes them, without TensorBoard.

An event file is a sequence of records, each a length, a checksum, a serialized `Event` message and a checksum; see
https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto and `summary.proto`,
`tensor.proto` beside it, whose field numbers are used here.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tuiapp.trainers.config.files import printable
from tuiapp.trainers.contract.media import MAX_TEXT, Content
from tuiapp.trainers.contract.metrics import shortest

CHUNK_BYTES = 1 << 20
MAX_RECORD_BYTES = 1 << 30
"""A record with an image or a histogram may be large; a larger one is damage."""
MAX_TAG = 200

_PROCESS = re.compile(r"tfevents\.\d+\.(?P<host>.+)\.(?P<pid>\d+)\.\d+(\.v2)?$")
_SECONDS = re.compile(r"\d{10}\.\d+")
"""A directory that `add_hparams` names by the clock."""
_LENGTH = struct.Struct("<QI")
_FLOAT, _DOUBLE = 1, 2
"""Data types of a tensor: the numbers in `types.proto`."""
_STARTED = 1
"""The status in a session log of a program that has begun or goes on."""

Field: TypeAlias = tuple[int, int | bytes]


class Scalar(NamedTuple):
    pid: int
    """The process that wrote it; 0 if its file's name has none."""
    step: int
    name: str
    """The value's tag, after its directory's name unless that is its rank's main one, or a time."""
    value: float | list[Content]
    """A number, or pictures as they were encoded, or a text."""
    time: float
    """Seconds since the epoch, as the writer says; 0 if it says none."""


class Purge(NamedTuple):
    """A program that was started again writes from this step on: what these names had there does not count."""

    pid: int
    step: int
    names: list[str]


class FoundEventFiles:
    """The event files in a directory and those below, with a `host` those that it has written.

    What they hold before the start is skipped. `rank_of` tells of which rank a process is, by its pid: a rank's main
    directory is the topmost one in which its files appeared first.
    """

    def __init__(self, directory: Path, host: str = "", rank_of: Callable[[int], int] = lambda _: 0) -> None:
        self._directory, self._host, self._rank_of = directory, host, rank_of
        self._offsets: dict[Path, int] = {}
        for path in self._find():
            with contextlib.suppress(OSError):
                self._offsets[path] = path.stat().st_size
        self._skipped = {**self._offsets}
        self._tags: dict[Path, dict[str, None]] = {}
        """Directory → the tags read in its files."""
        self._main: dict[int, Path] = {}
        self.damaged: list[Path] = []
        """Files that are read no further."""

    def read(self) -> list[Scalar | Purge]:
        """Returns the scalars written since the last call, and what does not count any more of those before."""
        scalars: list[Scalar | Purge] = []
        grown = [path for path in self._find() if path not in self.damaged and self._has_more(path)]
        for path in sorted(grown, key=lambda path: (len(path.parts), path.name)):
            self._main.setdefault(self._rank_of(_pid(path)), path.parent)
        for path in grown:
            try:
                scalars += self._read(path)
            except OSError:
                continue
            except (ValueError, struct.error, IndexError):
                self.damaged.append(path)
        return scalars

    def _find(self) -> list[Path]:
        return sorted(
            Path(root, name)
            for root, _, names in os.walk(self._directory)
            for name in names
            if "tfevents" in name and self._is_own(name)
        )

    def _is_own(self, name: str) -> bool:
        named = _PROCESS.search(name) if self._host else None
        return named is None or named["host"] == self._host

    def _has_more(self, path: Path) -> bool:
        try:
            return path.stat().st_size > self._offsets.get(path, 0)
        except OSError:
            return False

    def _read(self, path: Path) -> Iterator[Scalar | Purge]:
        pid, directory = _pid(path), path.parent
        main = self._main[self._rank_of(pid)]
        tags = self._tags.setdefault(directory, {})
        for record, end in _records(path, self._offsets.get(path, 0)):
            if (step := _start(record)) is not None:
                tags |= self._read_skipped(directory)
                if tags:
                    yield Purge(pid, step, [self._name(directory, tag, main) for tag in tags])
            for moment, step, tag, value in _scalars(record):
                tags[tag] = None
                yield Scalar(pid, step, self._name(directory, tag, main), value, moment)
            self._offsets[path] = end

    def _read_skipped(self, directory: Path) -> dict[str, None]:
        """Returns the tags in what was skipped of a directory's files, the first time."""
        tags: dict[str, None] = {}
        for path in [path for path in self._skipped if path.parent == directory]:
            end = self._skipped.pop(path)
            with contextlib.suppress(OSError, ValueError, struct.error, IndexError):
                records = (record for record, offset in _records(path, 0) if offset <= end)
                tags |= dict.fromkeys(tag for record in records for _, _, tag, _ in _scalars(record))
        return tags

    def _name(self, directory: Path, tag: str, main: Path) -> str:
        if directory == main:
            return tag[:MAX_TAG]
        if _SECONDS.fullmatch(directory.name):
            # The same figure of every run.
            return self._name(directory.parent, tag, main)
        above = main if directory.is_relative_to(main) else self._directory
        if directory == above:
            return tag[:MAX_TAG]
        return f"{printable(str(directory.relative_to(above)))}/{tag}"[:MAX_TAG]


def _pid(path: Path) -> int:
    named = _PROCESS.search(path.name)
    return int(named["pid"]) if named else 0


def _records(path: Path, begin: int) -> Iterator[tuple[bytes, int]]:
    """Yields a file's whole records from a place on, each with its end. Raises OSError, ValueError for damage."""
    with path.open("rb") as file:
        file.seek(begin)
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            length, _ = _LENGTH.unpack(head)
            if length > MAX_RECORD_BYTES:
                raise ValueError("no record has this length")
            if length > CHUNK_BYTES:
                # No scalar is that long, and a picture of which others see little.
                file.seek(length, os.SEEK_CUR)
                record = b""
            elif len(record := file.read(length)) < length:
                return
            if len(file.read(4)) < 4:
                return  # it is being written
            yield record, file.tell()


def _start(event: bytes) -> int | None:
    """Returns the step from which a serialized Event says that a program goes on; None if it says none."""
    step, status = 0, 0
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 7 and isinstance(value, bytes):
            status = _first_number(value)
    return step if status == _STARTED and step < 1 << 63 else None


def _scalars(event: bytes) -> Iterator[tuple[float, int, str, float | list[Content]]]:
    """Yields time, step, tag and value of each scalar in a serialized Event."""
    moment, step, summaries = 0.0, 0, []
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes):
            (moment,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    if step >= 1 << 63:
        return  # negative
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes) and (scalar := _scalar(value)):
                yield (moment, step, *scalar)


def _scalar(message: bytes) -> tuple[str, float | list[Content]] | None:
    """Returns tag and value of a serialized Summary.Value; None if it is no scalar, picture or text."""
    tag, tensor = "", b""
    result: float | list[Content] | None = None
    for number, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode(errors="replace")
        elif number == 2:
            result = shortest(struct.unpack("<f", value)[0])
        elif number == 4 and (picture := _text(value, 4)):
            result = [("image", picture, "")]
        elif number == 8:
            result, tensor = _tensor(value), value
        elif number == 9 and (plugin := _text(_text(value))) and plugin != b"scalars":
            tag = tag.removesuffix("/text_summary")
            strings = [text for number, text in _fields(tensor) if number == 8 and isinstance(text, bytes)]
            # Before the pictures are their width and height.
            result = [("image", picture, "") for picture in strings[2:]] if plugin == b"images" else []
            if plugin == b"text" and (text := b"\n".join(strings)):
                result = [("text", text[:MAX_TEXT], "")]
    return (tag, result) if tag and result not in (None, []) else None


def _text(message: bytes, field: int = 1) -> bytes:
    """Returns a message's first field of a number that is a text or a message; b"" without one."""
    return next((value for number, value in _fields(message) if number == field and isinstance(value, bytes)), b"")


def _tensor(message: bytes) -> float | None:
    """Returns the number in a serialized TensorProto; None if it holds another type, or more than one."""
    kind, content, shape = 0, b"", b""
    for number, value in _fields(message):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes):
            shape = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    sizes = [_first_number(value) for number, value in _fields(shape) if number == 2 and isinstance(value, bytes)]
    if kind not in (_FLOAT, _DOUBLE) or prod(sizes) != 1:
        return None
    if not content:  # A number that is 0 may be left out.
        return 0.0
    if kind == _FLOAT:
        return shortest(struct.unpack("<f", content)[0])
    return float(struct.unpack("<d", content)[0])


def _first_number(message: bytes) -> int:
    """Returns the number in a message's first field; 0 without one."""
    return next((value for number, value in _fields(message) if number == 1 and isinstance(value, int)), 0)


def _fields(message: bytes) -> Iterator[Field]:
    """Yields number and value of each field of a serialized message: an int for a varint, else its bytes."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        kind = key & 7
        if kind == 0:
            number, offset = _varint(message, offset)
            yield key >> 3, number
            continue
        if kind == 2:
            size, offset = _varint(message, offset)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("no field has this type")
        if offset + size > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[offset : offset + size]
        offset += size


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = message[offset]
        offset += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, offset
        shift += 7
        if shift > 63:
            raise ValueError("no number is that long")
