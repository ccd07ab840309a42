"""What verbs print: data on stdout, narration on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

from tuiapp.trainers.state.text import sanitize

if TYPE_CHECKING:
    from tuiapp.actions.action import Outcome


collected: ContextVar[tuple[list[object], list[str]] | None] = ContextVar("collected", default=None)
"""Where a verb that is called in this thread puts data and narration; None: it prints them."""


def tell(text: str) -> None:
    """Prints a line of narration."""
    if (into := collected.get()) is not None:
        into[1].append(sanitize(text))
    else:
        print(f"tuiapp: {sanitize(text)}", file=sys.stderr)


def print_json(facts: object, *, indent: int | None = 2) -> None:
    """Prints data as JSON."""
    if (into := collected.get()) is not None:
        into[0].append(facts)
    else:
        print(json.dumps(facts, indent=indent), flush=True)


def print_outcome(outcome: Outcome) -> int:
    """Prints what came of an action; returns 1 if something of it was not done, and else 0."""
    for severity, text in outcome.notes:
        if severity == "information":
            print(sanitize(text), file=sys.stderr)
        else:
            tell(text)
    return 1 if outcome.of("error") else 0


def width_of_stdout() -> int:
    """Returns the terminal's width; where stdout is none, lines are as long as they are."""
    return get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields each row as a line, its cells in columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def redirect_to_devnull(stream: TextIO) -> None:
    """Redirects a stream to devnull, so that the write at exit does not fail and replace the exit code with 120."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class UsageError(Exception):
    """Arguments that do not go together; the message names them."""
