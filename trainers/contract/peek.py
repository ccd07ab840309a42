"""What the two ends of a journal tell, without reading what lies between: for lists of many runs."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainers.contract.events import JOURNAL_SCHEMA, AnyEvent, decode

HEAD_BYTES = 16 << 10
TAIL_BYTES = 64 << 10


class NewerJournalError(Exception):
    """A later version of tuiapp wrote the journal; the message says which schema it has."""


OPENED_BY = {1: "0.1.0"}
"""Earlier schemas -> the last version of tuiapp that reads them."""


class _Opening(msgspec.Struct):
    """What is read of the first line, whatever else it holds."""

    type: str = ""
    schema: int = 1


_opening = msgspec.json.Decoder(_Opening)


@dataclass(frozen=True, slots=True)
class Glance:
    """A journal's first event and its last lines."""

    exists: bool = False
    size: int = 0
    first: AnyEvent | None = None
    lines: tuple[bytes, ...] = ()
    """The last ones; the first may start within a line, the last may be torn."""
    schema: int = JOURNAL_SCHEMA
    """Not above this version's."""

    @property
    def older(self) -> str:
        """Why this version does not read the journal, which an earlier one wrote, in words; "" when it does."""
        if self.schema == JOURNAL_SCHEMA:
            return ""
        version = OPENED_BY.get(self.schema, "")
        reader = f"tuiapp {version} opens it" if version else "no version of tuiapp opens it"
        return f"its journal has schema {self.schema}: {reader}, this version reads schema {JOURNAL_SCHEMA}"

    @property
    def last(self) -> AnyEvent | None:
        """The event of the last whole line; None for none that is known."""
        return decode(self.lines[-2]) if len(self.lines) > 1 else None

    def tail(self) -> list[AnyEvent]:
        """The events of the last lines."""
        return [event for line in self.lines if (event := decode(line)) is not None]


def look(journal: Path) -> Glance:
    """Look at a journal; one that does not exist is an empty glance.

    Raises:
        OSError: it cannot be opened, or is no regular file.
        NewerJournalError: a later version wrote it.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        fd = os.open(journal, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Glance()
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(journal))
        size = found.st_size
        start = max(0, size - TAIL_BYTES)
        end = os.pread(fd, TAIL_BYTES, start)
        head = end if start == 0 else os.pread(fd, HEAD_BYTES, 0)
    finally:
        os.close(fd)
    line, newline, _ = head.partition(b"\n")
    schema = _schema_of(line) if newline else JOURNAL_SCHEMA
    return Glance(True, size, decode(line) if newline else None, tuple(end.split(b"\n")), schema)


def _schema_of(line: bytes) -> int:
    """The schema that a journal's first line names; this version's where the line is damaged."""
    try:
        opening = _opening.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return JOURNAL_SCHEMA
    schema = opening.schema
    if schema > JOURNAL_SCHEMA:
        raise NewerJournalError(
            f"its journal has schema {schema}, this version of tuiapp reads {JOURNAL_SCHEMA}: update tuiapp to see it"
        )
    # A journal whose first line was lost is read as far as it goes.
    return schema if opening.type == "run-started" else JOURNAL_SCHEMA
