"""A run's figures as a parquet file: NaN and infinities are values, null was not reported."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import get_args, get_type_hints

import pyarrow
import pyarrow.parquet

from tuiapp.library.exporters import What
from tuiapp.library.exporters.tables import SAMPLES, columns_of, rows_of
from tuiapp.trainers.contract.rundir import RunDir

ROWS_AT_ONCE = 16_384  # a row group
_INTEGERS: dict[What, tuple[str, ...]] = {"predictions": ("count",), "epochs": ("epoch", "of_steps")}


def write(path: Path, run: RunDir, what: What) -> int:
    """Writes a new file; returns the number of rows."""
    schema = pyarrow.schema([(name, _parquet_type(name, what)) for name in columns_of(run, what)])
    rows, count = rows_of(run, what), 0
    with path.open("xb") as file, pyarrow.parquet.ParquetWriter(file, schema) as table:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            columns = [
                pyarrow.array([row.get(field.name) for row in some], field.type, from_pandas=False) for field in schema
            ]
            table.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
            count += len(some)
    return count


def _parquet_type(column: str, what: What) -> pyarrow.DataType:
    """Returns the type of a column: a metric is a float64; nested fields of samples are JSON."""
    # A metric may have the name of another table's column.
    if column in {"attempt", "rank", "step", "steps", "joined", *_INTEGERS.get(what, ())}:
        return pyarrow.int64()
    if column in ("label", "predicted", "name", "kind", "file", "caption") and what in ("predictions", "media"):
        return pyarrow.string()
    if column == "time" or what != "samples":
        return pyarrow.float64()
    hints = [hint for kind in SAMPLES for name, hint in get_type_hints(kind).items() if name == column]
    kinds = {kind for hint in hints for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))}
    kinds.discard(NoneType)
    if float in kinds:
        return pyarrow.float64()
    return pyarrow.int64() if kinds == {int} else pyarrow.string()
