"""A run's figures as JSON, an object a line, strict: `"NaN"`, `"Infinity"` and `"-Infinity"` are texts."""

from __future__ import annotations

from math import isfinite, isnan
from pathlib import Path
from typing import TextIO

import msgspec

from tuiapp.library.exporters import What
from tuiapp.library.exporters.tables import rows_of
from tuiapp.trainers.contract.rundir import RunDir


def write(path: Path, run: RunDir, what: What) -> int:
    """Writes a new file; returns the number of rows."""
    with path.open("x", encoding="utf-8", newline="") as file:
        return write_rows(file, run, what)


def write_rows(file: TextIO, run: RunDir, what: What) -> int:
    """Writes the rows to an open file; returns their number."""
    encoder, count = msgspec.json.Encoder(), 0
    for row in rows_of(run, what):
        file.write(encoder.encode({name: _json(value) for name, value in row.items()}).decode() + "\n")
        count += 1
    return count


def _json(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
