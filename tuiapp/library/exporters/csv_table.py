"""A run's figures as comma-separated values: `NaN`, `inf` and `-inf` are values, an empty cell was not reported."""

from __future__ import annotations

import csv
from math import isnan
from typing import TextIO

from tuiapp.library.exporters import What
from tuiapp.library.exporters.tables import columns_of, rows_of
from tuiapp.trainers.contract.rundir import RunDir


def write_rows(file: TextIO, run: RunDir, what: What) -> int:
    """Writes a table to a file without newline translation; returns the number of rows."""
    columns, table, count = columns_of(run, what), csv.writer(file, lineterminator="\n"), 0
    table.writerow(map(_no_formula, columns))
    for row in rows_of(run, what):
        table.writerow([_cell(row.get(column)) for column in columns])
        count += 1
    return count


def _cell(value: object) -> object:
    return "NaN" if isinstance(value, float) and isnan(value) else _no_formula(value)


def _no_formula(cell: object) -> object:
    """Returns a cell, text that a spreadsheet would take for a formula quoted, as its manuals do."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell
