"""A run's figures as a table: read from its journal piece by piece, written line by line.

A resumed run has steps that were taken twice: after the checkpoint that it resumed from. Both are written; `attempt`
distinguishes them.
"""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

import msgspec

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
from trainers.contract.metrics import HELD_OUT, STEP_TIME, group_of
from trainers.contract.rundir import RunDir
from tuiapp.state.predictions import class_name, is_matrix
from tuiapp.state.text import sanitize

Format: TypeAlias = Literal["csv", "jsonl"]
What: TypeAlias = Literal["steps", "evaluations", "metrics", "samples", "predictions"]
"""Metrics of steps, those of evaluations, both, the sampler's figures, or how often classes were predicted."""
Row: TypeAlias = dict[str, object]

_PLACE = ("attempt", "time", "rank", "step", "steps")
"""Columns before those of the metrics; `steps` is the length of an entry's window, which ends at `step`."""

_SAMPLES = (DeviceSample, RankSample, HostSample)


class ExportError(Exception):
    """Nothing was written; the message gives the reason and what to do."""


def check_target(path: Path, form: Format, *, force: bool) -> None:
    """Raises `ExportError` if `path` has another format's name, exists (without `force`), or is not a regular file."""
    if path.suffix and path.suffix.lower() != f".{form}":
        raise ExportError(f"{path.name} must end in .{form}, the chosen format. Formats: csv, jsonl.")
    try:
        found = path.stat()
    except OSError:
        if not path.parent.is_dir():
            raise ExportError(f"The directory {path.parent} does not exist.") from None
        return
    if not stat.S_ISREG(found.st_mode):
        raise ExportError(f"{path} is not a regular file.")
    if not force:
        raise ExportError(f"{path} exists. Choose another name, or overwrite it (--force).")


def export_to(path: Path, run: RunDir, what: What, form: Format, *, force: bool = False) -> int:
    """Writes a run's figures to a file, atomically; returns the number of rows. Raises `ExportError` if it cannot."""
    check_target(path, form, force=force)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "x", encoding="utf-8", newline="") as file:
            count = write_rows(file, run, what, form)
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(temporary, target, force=force)
    except FileExistsError:
        raise ExportError(f"{path} exists. Choose another name, or overwrite it (--force).") from None
    except OSError as error:
        raise ExportError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return count


def _put_in_place(temporary: Path, target: Path, *, force: bool) -> None:
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


def write_rows(file: TextIO, run: RunDir, what: What, form: Format) -> int:
    """Writes a run's figures to a file open without newline translation; returns the number of rows but the header."""
    count = 0
    if form == "csv":
        table = csv.DictWriter(file, columns_of(run, what), lineterminator="\n", extrasaction="ignore")
        table.writeheader()
    encoder = msgspec.json.Encoder()
    for row in rows_of(run, what):
        if form == "csv":
            table.writerow(row)
        else:
            file.write(encoder.encode(row).decode() + "\n")
        count += 1
    return count


def columns_of(run: RunDir, what: What) -> list[str]:
    """Returns the columns of a table; those of metrics in order of appearance, which reads the journal."""
    if what == "samples":
        fields = [name for kind in _SAMPLES for name in kind.__struct_fields__ if name not in _base_fields()]
        return ["attempt", "time", "kind", *dict.fromkeys(fields)]
    if what == "predictions":
        return ["attempt", "time", "step", "label", "predicted", "count"]
    found = dict.fromkeys(_PLACE)
    for event, _ in _events(run):
        if isinstance(event, Metrics):
            for name in event.values:
                if _is_in(name, what):
                    found |= dict.fromkeys(_column(name) + end for end, bound in _BOUNDS if bound(event, name))
    return list(found)


def rows_of(run: RunDir, what: What) -> Iterator[Row]:
    """Yields the rows of a table, in the journal's order; reads it piece by piece."""
    for event, attempt in _events(run):
        if isinstance(event, Metrics):
            if what not in ("samples", "predictions"):
                yield from _metric_rows(event, attempt, what)
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


def _is_in(name: str, what: What) -> bool:
    return what == "metrics" or (group_of(name) in HELD_OUT) == (what == "evaluations")


def _column(name: str) -> str:
    name = sanitize(name)
    return f"metric/{name}" if name in _PLACE else name


_BOUNDS: tuple[tuple[str, Callable[[Metrics, str], list[float | None] | None]], ...] = (
    ("", lambda event, name: event.values[name]),
    ("_min", lambda event, name: (event.lows or {}).get(name)),
    ("_max", lambda event, name: (event.highs or {}).get(name)),
)
"""Suffix of a column's name -> its values."""


def _metric_rows(event: Metrics, attempt: int, what: What) -> Iterator[Row]:
    names = [name for name in event.values if _is_in(name, what)]
    if not names:
        return
    size = len(event.values[names[0]])
    lists = {_column(name) + end: values for name in names for end, bound in _BOUNDS if (values := bound(event, name))}
    lists = {name: values for name, values in lists.items() if len(values) == size}
    counts = event.counts or [1] * size
    seconds = [each or 0.0 for each in event.values.get(STEP_TIME, [0.0] * size)]
    # The event's time is that of its last step.
    moment = event.time - sum(each * count for each, count in zip(seconds, counts, strict=True))
    step = event.first_step - 1
    for place, count in enumerate(counts):
        step += count
        moment += seconds[place] * count
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
