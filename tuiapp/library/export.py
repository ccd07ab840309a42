"""A run's figures for other programs: as a table (csv, jsonl, parquet), or as a directory for TensorBoard or W&B.

The journal is read piece by piece. A resumed run has steps that were taken twice: after the checkpoint that it resumed
from. A table has both; `attempt` distinguishes them. A directory shows the later ones.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from trainers.config.mirror import INSTALL, PACKAGE
from trainers.contract.events import (
    AnyEvent,
    DeviceSample,
    Event,
    HostSample,
    Metrics,
    Predictions,
    RankSample,
    RunStarted,
)
from trainers.contract.journal import JournalReader
from trainers.contract.metrics import HELD_OUT, group_of
from trainers.contract.rundir import RunDir
from tuiapp.state.predictions import class_name, is_matrix
from tuiapp.state.text import sanitize

if TYPE_CHECKING:
    import pyarrow

Format: TypeAlias = Literal["csv", "jsonl", "parquet", "tensorboard", "wandb-offline"]
FORMATS: tuple[Format, ...] = ("csv", "jsonl", "parquet", "tensorboard", "wandb-offline")
DIRECTORIES: tuple[Format, ...] = ("tensorboard", "wandb-offline")
What: TypeAlias = Literal["steps", "evaluations", "metrics", "samples", "predictions"]
"""Metrics of steps, those of evaluations, both, the sampler's figures, or how often classes were predicted."""
TABLES: tuple[What, ...] = ("steps", "evaluations", "metrics", "samples", "predictions")
ROWS_AT_ONCE = 16_384  # a row group of a parquet file

_NEEDED = {
    "parquet": ("pyarrow", "pip install pyarrow"),
    "tensorboard": (PACKAGE, INSTALL),
    "wandb-offline": ("wandb", "pip install wandb"),
}
"""Format -> the package that writes it, and how it is installed."""
_IN_NAMES = {"tensorboard": "tfevents", "wandb-offline": "offline-run-"}
"""Format -> what is in the name of every file of such a directory, or of a directory above it."""
Row: TypeAlias = dict[str, object]

_PLACE = ("attempt", "time", "rank", "step", "steps")
"""Columns before those of the metrics; `steps` is the length of an entry's window, which ends at `step`."""

_SAMPLES = (DeviceSample, RankSample, HostSample)


class ExportError(Exception):
    """Nothing was written; the message gives the reason and what to do."""


def check_target(path: Path, form: Format, what: What = "metrics", *, force: bool) -> None:
    """Raises `ExportError` if the format cannot be written here, or cannot be written to `path`.

    A file has no other format's name, and does not exist (without `force`); a directory does not exist, or has nothing
    but such an export (with `force`).
    """
    package, install = _NEEDED.get(form, ("csv", ""))
    if importlib.util.find_spec(package) is None:
        raise ExportError(f"The format {form} needs {package}, which is not installed: {install}")
    if form in DIRECTORIES and what in ("samples", "predictions"):
        raise ExportError(f"{form} holds metrics, no {what}: choose csv, jsonl or parquet for those.")
    if form not in DIRECTORIES and path.suffix and path.suffix.lower() != f".{form}":
        raise ExportError(f"{path.name} must end in .{form}, the chosen format. Formats: {', '.join(FORMATS)}.")
    try:
        found = path.stat()
    except OSError:
        if not path.parent.is_dir():
            raise ExportError(f"The directory {path.parent} does not exist.") from None
        return
    if form in DIRECTORIES:
        if not stat.S_ISDIR(found.st_mode):
            raise ExportError(f"{path} is not a directory, as {form} needs.")
    elif not stat.S_ISREG(found.st_mode):
        raise ExportError(f"{path} is not a regular file.")
    if not force:
        raise ExportError(exists(path))
    if form in DIRECTORIES and (other := other_file(path, _IN_NAMES[form])):
        raise ExportError(f"{path} has other files than an export, such as {other}: choose another name.")


def exists(path: Path) -> str:
    """Says that a path exists."""
    return f"{path} exists. Choose another name, or overwrite it (--force)."


def other_file(directory: Path, mark: str) -> Path | None:
    """Returns a file below a directory without `mark` in its path from there; None if there is none."""
    for root, _, names in os.walk(directory):
        for name in names:
            if mark not in os.path.join(os.path.relpath(root, directory), name):
                return Path(root, name)
    return None


def export_to(path: Path, run: RunDir, what: What, form: Format, *, force: bool = False) -> int:
    """Writes a run's figures to a file or directory, atomically; returns the number of rows, or of steps of ranks.

    Raises `ExportError` if it cannot.
    """
    check_target(path, form, what, force=force)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        if form in DIRECTORIES:
            count = _write_directory(temporary, run, what, form)
            put_directory_in_place(temporary, target, force=force)
        else:
            with _new_file(temporary, form) as file:
                count = write_rows(file, run, what, form)
                file.flush()
                os.fsync(file.fileno())
            put_in_place(temporary, target, force=force)
    except FileExistsError:
        raise ExportError(exists(path)) from None
    except OSError as error:
        raise ExportError(f"Cannot write {path}: {error.strerror or error}.") from error
    except (OverflowError, ValueError) as error:
        # A damaged journal may have numbers that no column holds.
        raise ExportError(f"Cannot write {path}: {error}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink()
    return count


def _new_file(path: Path, form: Format) -> IO[Any]:
    return open(path, "xb") if form == "parquet" else open(path, "x", encoding="utf-8", newline="")


def _write_directory(path: Path, run: RunDir, what: What, form: Format) -> int:
    path.mkdir()
    if form == "tensorboard":
        from tuiapp.library import export_tensorboard

        return export_tensorboard.write(path, run, lambda name: is_in(name, what))
    from tuiapp.library import export_wandb

    return export_wandb.write(path, run, what)


def put_directory_in_place(temporary: Path, target: Path, *, force: bool) -> None:
    """Renames a directory that is complete; with `force` it takes the place of an earlier one, which is removed.

    Raises FileExistsError if there is one (without `force`), OSError.
    """
    earlier = temporary.with_name(f"{temporary.name}.earlier")
    if force:
        with contextlib.suppress(FileNotFoundError):
            os.rename(target, earlier)
    elif target.exists():
        raise FileExistsError(target)
    os.rename(temporary, target)
    shutil.rmtree(earlier, ignore_errors=True)


def put_in_place(temporary: Path, target: Path, *, force: bool) -> None:
    """Renames a file that is complete. Raises FileExistsError if there is one (without `force`), OSError."""
    if not force:
        try:
            # Unlike a rename, a link does not overwrite a file created meanwhile.
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:
            # A file system without links.
            if target.exists():
                raise FileExistsError(target) from None
        else:
            return
    os.replace(temporary, target)


def write_rows(file: IO[Any], run: RunDir, what: What, form: Format) -> int:
    """Writes a table to an open file, for csv and jsonl without newline translation; returns the number of rows."""
    rows = rows_of(run, what)
    if form == "parquet":
        return _write_parquet(file, run, what, rows)
    count = 0
    if form == "csv":
        columns, table = columns_of(run, what), csv.writer(file, lineterminator="\n")
        table.writerow(map(_no_formula, columns))
    encoder = msgspec.json.Encoder()
    for row in rows:
        if form == "csv":
            table.writerow([_no_formula(row.get(column)) for column in columns])
        else:
            file.write(encoder.encode(row).decode() + "\n")
        count += 1
    return count


def _write_parquet(file: IO[Any], run: RunDir, what: What, rows: Iterator[Row]) -> int:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, _parquet_type(name, what)) for name in columns_of(run, what)])
    count = 0
    with pyarrow.parquet.ParquetWriter(file, schema) as table:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            columns = [
                pyarrow.array([row.get(field.name) for row in some], field.type, from_pandas=False) for field in schema
            ]
            table.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
            count += len(some)
    return count


def _parquet_type(column: str, what: What) -> pyarrow.DataType:
    """The type of a column: a metric is a float64; nested fields of samples are JSON."""
    import pyarrow

    if column in ("attempt", "rank", "step", "steps", "count"):
        return pyarrow.int64()
    if column in ("label", "predicted") and what == "predictions":
        return pyarrow.string()
    if column == "time" or what != "samples":
        return pyarrow.float64()
    hints = [hint for kind in _SAMPLES for name, hint in get_type_hints(kind).items() if name == column]
    kinds = {kind for hint in hints for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))}
    kinds.discard(NoneType)
    if float in kinds:
        return pyarrow.float64()
    return pyarrow.int64() if kinds == {int} else pyarrow.string()


def columns_of(run: RunDir, what: What) -> list[str]:
    """Returns the columns of a table; those of metrics in order of appearance, which reads the journal."""
    if what == "samples":
        fields = [name for kind in _SAMPLES for name in kind.__struct_fields__ if name not in _base_fields()]
        return ["attempt", "time", "kind", *dict.fromkeys(fields)]
    if what == "predictions":
        return ["attempt", "time", "step", "label", "predicted", "count"]
    found, columns = dict.fromkeys(_PLACE), _Columns()
    for event, _ in _events(run):
        if isinstance(event, Metrics):
            for name in event.values:
                if is_in(name, what):
                    found |= dict.fromkeys(columns.of(name, end) for end, bound in _BOUNDS if bound(event, name))
    return list(found)


def rows_of(run: RunDir, what: What) -> Iterator[Row]:
    """Yields the rows of a table, in the journal's order; reads it piece by piece."""
    columns = _Columns()
    for event, attempt in _events(run):
        if isinstance(event, Metrics):
            if what not in ("samples", "predictions"):
                yield from _metric_rows(event, attempt, what, columns)
        elif isinstance(event, Predictions):
            if what == "predictions":
                yield from _prediction_rows(event, attempt)
        elif what == "samples" and isinstance(event, _SAMPLES):
            yield _plain_row(event, attempt)


def _events(run: RunDir) -> Iterator[tuple[AnyEvent, int]]:
    reader, attempt = JournalReader(run.journal), 1
    while events := reader.read():
        for event in events:
            if isinstance(event, RunStarted):
                attempt = event.attempt
            yield event, attempt


def is_in(name: str, what: str) -> bool:
    """Whether a metric is in a part of a run's figures."""
    return what == "metrics" or (group_of(name) in HELD_OUT) == (what == "evaluations")


class _Columns:
    """The columns of metrics, in order of appearance: two whose names look the same on a screen stay two."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def of(self, name: str, end: str) -> str:
        """Returns the column of a metric's values, or of the bounds that `end` names."""
        if (name, end) not in self._of:
            plain = sanitize(name)
            wanted = first = (f"metric/{plain}" if plain in _PLACE else plain) + end
            for number in itertools.count(2):
                if wanted not in self._taken:
                    break
                wanted = f"{first} ({number})"
            self._of[name, end] = wanted
            self._taken.add(wanted)
        return self._of[name, end]


def _no_formula(cell: object) -> object:
    """Text that a spreadsheet would take for a formula is quoted, as its manuals do."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell


_BOUNDS: tuple[tuple[str, Callable[[Metrics, str], list[float | None] | None]], ...] = (
    ("", lambda event, name: event.values[name]),
    ("_min", lambda event, name: (event.lows or {}).get(name)),
    ("_max", lambda event, name: (event.highs or {}).get(name)),
)
"""Suffix of a column's name -> its values."""


def _metric_rows(event: Metrics, attempt: int, what: What, columns: _Columns) -> Iterator[Row]:
    names = [name for name in event.values if is_in(name, what)]
    if not names:
        return
    size = len(event.values[names[0]])
    found = [(name, end, bound(event, name)) for name in names for end, bound in _BOUNDS]
    lists = {columns.of(name, end): values for name, end, values in found if values}
    lists = {name: values for name, values in lists.items() if len(values) == size}
    for place, (step, moment) in enumerate(event.places()):
        count = event.counts[place] if event.counts else 1
        row: Row = {"attempt": attempt, "time": round(moment, 6), "rank": event.rank, "step": step, "steps": count}
        for name, values in lists.items():
            row[name] = values[place]
        yield row


def _prediction_rows(event: Predictions, attempt: int) -> Iterator[Row]:
    matrix = is_matrix(event)
    for label, row in enumerate(event.counts):
        for place, count in enumerate(row):
            predicted = class_name(event, place) if matrix else ("right", "wrong")[place > 0]
            yield {
                "attempt": attempt, "time": event.time, "step": event.step, "label": class_name(event, label),
                "predicted": predicted, "count": count,
            }  # fmt: skip


def _plain_row(event: AnyEvent, attempt: int) -> Row:
    row: Row = {"attempt": attempt, "time": event.time, "kind": event.__struct_config__.tag}
    for name in event.__struct_fields__:
        if name not in _base_fields():
            row[name] = _cell(getattr(event, name))
    return row


def _cell(value: object) -> object:
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, (list, tuple, dict, msgspec.Struct)):
        # Nested values stay JSON, within csv as well.
        return sanitize(msgspec.json.encode(value).decode())
    return value


def _base_fields() -> tuple[str, ...]:
    return Event.__struct_fields__
