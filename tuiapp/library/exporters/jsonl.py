"""A run's figures as JSON, an object a line, strict: `"NaN"`, `"Infinity"` and `"-Infinity"` are texts."""

from __future__ import annotations

from typing import TextIO

import msgspec

from tuiapp.library.exporters import What
from tuiapp.library.exporters.tables import rows_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.text import in_json


def write_rows(file: TextIO, run: RunDir, what: What) -> int:
    """Writes the rows to an open file; returns their number."""
    encoder, count = msgspec.json.Encoder(), 0
    for row in rows_of(run, what):
        file.write(encoder.encode({name: in_json(value) for name, value in row.items()}).decode() + "\n")
        count += 1
    return count
