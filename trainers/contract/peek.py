"""The two ends of a journal, without the part between them: for lists of many runs."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainers.contract.events import JOURNAL_SCHEMA, AnyEvent, decode
from trainers.contract.journal import last_lines, read_first

HEAD_BYTES = 16 << 10
TAIL_BYTES = 64 << 10


class NewerJournalError(Exception):
    """A later version of tuiapp wrote the journal; the message says which schema it has."""


OPENED_BY = {1: "0.1.0"}
"""Earlier schemas → the last version of tuiapp that reads them."""


class _Opening(msgspec.Struct):
    type: str = ""
    schema: int = 1


_opening = msgspec.json.Decoder(_Opening)


@dataclass(frozen=True, slots=True)
class JournalPeek:
    exists: bool = False
    size: int = 0
    first: AnyEvent | None = None
    lines: tuple[bytes, ...] = ()
    """The last complete ones."""
    schema: int = JOURNAL_SCHEMA
    """Not above this version's."""

    @property
    def older(self) -> str:
        """Why this version does not read an earlier version's journal, in words; "" if it does."""
        if self.schema == JOURNAL_SCHEMA:
            return ""
        version = OPENED_BY.get(self.schema, "")
        reader = f"tuiapp {version} opens it" if version else "no version of tuiapp opens it"
        return f"its journal has schema {self.schema}: {reader}, this version reads schema {JOURNAL_SCHEMA}"

    @property
    def last(self) -> AnyEvent | None:
        return next((event for line in reversed(self.lines) if (event := decode(line)) is not None), None)

    def tail(self) -> list[AnyEvent]:
        return [event for line in self.lines if (event := decode(line)) is not None]


def peek_journal(journal: Path) -> JournalPeek:
    """Reads a journal's ends; a missing one gives an empty peek.

    Raises OSError if it is unreadable or no regular file, NewerJournalError if a later version wrote it.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        fd = os.open(journal, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return JournalPeek()
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(journal))
        head = os.pread(fd, HEAD_BYTES, 0)
        lines = tuple(last_lines(fd, TAIL_BYTES))
    finally:
        os.close(fd)
    line, newline, _ = head.partition(b"\n")
    schema = _schema_of(line) if newline else JOURNAL_SCHEMA
    return JournalPeek(True, found.st_size, decode(line) if newline else read_first(journal), lines, schema)


def _schema_of(line: bytes) -> int:
    """The schema in a journal's first line; this version's if the line is damaged."""
    try:
        opening = _opening.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return JOURNAL_SCHEMA
    schema = opening.schema
    if schema > JOURNAL_SCHEMA:
        raise NewerJournalError(
            f"its journal has schema {schema}, this version of tuiapp reads {JOURNAL_SCHEMA}: update tuiapp to see it"
        )
    # A journal whose first line was lost is read as far as possible.
    return schema if opening.type == "run-started" else JOURNAL_SCHEMA
