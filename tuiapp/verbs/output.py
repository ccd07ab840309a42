"""What verbs print: data on stdout, narration on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from tuiapp.actions.action import Outcome
from tuiapp.trainers.state.text import sanitize


def tell(text: str) -> None:
    """Prints a line of narration."""
    print(f"tuiapp: {sanitize(text)}", file=sys.stderr)


def print_outcome(outcome: Outcome) -> int:
    """Prints what came of an action; returns 1 if something of it was not done, and else 0."""
    for severity, text in outcome.notes:
        if severity == "information":
            print(sanitize(text), file=sys.stderr)
        else:
            tell(text)
    return 1 if outcome.of("error") else 0


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
