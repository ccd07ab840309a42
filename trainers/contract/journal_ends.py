"""The two ends of a journal, without the part between them: for lists of many runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import open_regular
from tuiapp.trainers.contract.events import JOURNAL_SCHEMA, AnyEvent, Facts, Queued, RunStarted, decode
from tuiapp.trainers.contract.journal import JournalReader, lines_back

HEAD_BYTES = 16 << 10
TAIL_BYTES = 64 << 10


class _Opening(msgspec.Struct):
    type: str = ""
    schema: int = 1


_opening = msgspec.json.Decoder(_Opening)


@dataclass(frozen=True, slots=True)
class JournalPeek:
    exists: bool = True
    error: OSError | None = None
    """Why it cannot be read."""
    first: AnyEvent | None = None
    """Of those after the wait in Slurm's queue, if it has begun."""
    lines: tuple[bytes, ...] = ()
    """The last complete ones."""
    head: tuple[bytes, ...] = ()
    """The complete ones after the first in the first `HEAD_BYTES`."""
    schema: int = JOURNAL_SCHEMA

    @property
    def newer(self) -> str:
        """Says that the journal has another schema than this version's, in words; "" if it has not."""
        if self.schema == JOURNAL_SCHEMA:
            return ""
        known = f"this version of tuiapp reads {JOURNAL_SCHEMA}: update tuiapp to see it"
        return f"its journal has schema {self.schema}, {known}"

    @property
    def last(self) -> AnyEvent | None:
        return next((event for line in reversed(self.lines) if (event := decode(line)) is not None), None)

    def tail(self) -> list[AnyEvent]:
        return [event for line in self.lines if (event := decode(line)) is not None]

    def begun(self) -> RunStarted | None:
        """The last attempt's first event, if it is among these lines, or else the first attempt's."""
        for line in reversed(self.lines):
            if line.startswith(b'{"type":"run-started",') and isinstance(event := decode(line), RunStarted):
                return event
        return self.first if isinstance(self.first, RunStarted) else None

    def facts(self) -> Facts:
        """What a script says of its run, as far as these lines have it."""
        found = Facts(time=0.0, mono=0.0)
        for line in (*self.head, *self.lines):
            # The type comes first on every line: no other line is decoded.
            if line.startswith(b'{"type":"facts",') and isinstance(event := decode(line), Facts):
                found = found.followed_by(event)
        return found


def peek_journal(journal: Path, tail_bytes: int = TAIL_BYTES) -> JournalPeek:
    """Reads a journal's first event and its last lines, at most `tail_bytes`; never raises."""
    try:
        fd = open_regular(journal)
    except FileNotFoundError:
        return JournalPeek(exists=False)
    except OSError as error:
        return JournalPeek(error=error)
    lines: list[bytes] = []
    try:
        opening, newline, rest = os.pread(fd, HEAD_BYTES, 0).partition(b"\n")
        for line in lines_back(fd, tail_bytes):
            tail_bytes -= len(line) + 1
            if tail_bytes < 0:
                break
            lines.append(line)
    except OSError as error:
        return JournalPeek(error=error)
    finally:
        os.close(fd)
    first = decode(opening) if newline else None
    if first is None or isinstance(first, Queued):
        first = _first(journal) or first
    head = tuple(rest.split(b"\n")[:-1])
    return JournalPeek(first=first, lines=tuple(lines[::-1]), head=head, schema=_schema_of(opening))


def _first(journal: Path) -> AnyEvent | None:
    reader = JournalReader(journal, chunk_bytes=HEAD_BYTES)
    return next((event for event in reader.rest() if not isinstance(event, Queued)), None)


def _schema_of(line: bytes) -> int:
    """The schema in a journal's first line; this version's if the line is damaged."""
    try:
        opening = _opening.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return JOURNAL_SCHEMA
    # A journal whose first line was lost is read as far as possible.
    return opening.schema if opening.type == "run-started" or opening.schema > JOURNAL_SCHEMA else JOURNAL_SCHEMA
