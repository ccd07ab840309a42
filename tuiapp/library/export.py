"""A run's figures as a table: read from its journal piece by piece, written line by line.

A run that was resumed has steps that were taken twice: after the checkpoint that it went on from. Both are written;
`attempt` tells them apart.
"""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

import msgspec

from trainers.contract.event import Event
from trainers.contract.events import AnyEvent, DeviceSample, Evaluation, HostSample, RankSample, RunStarted, Steps
from trainers.contract.journal import JournalReader
from trainers.contract.rundir import RunDir
from tuiapp.state.text import sanitize

Format: TypeAlias = Literal["csv", "jsonl"]
What: TypeAlias = Literal["steps", "evaluations", "samples"]
Row: TypeAlias = dict[str, object]

"""Is told how many rows are written."""

_STEP_COLUMNS = {
    "losses": "loss",
    "losses_min": "loss_min",
    "losses_max": "loss_max",
    "learning_rates": "learning_rate",
    "counts": "steps",
}
"""Lists of `Steps` → what one entry is called."""

_SAMPLES = (DeviceSample, RankSample, HostSample)


class ExportError(Exception):
    """Nothing was written; the message says why and what to do."""


def check_target(path: Path, form: Format, *, force: bool) -> None:
    """Refuse what an export should not be written to.

    Raises:
        ExportError: its name says another format, it exists and is not to be overwritten, or it is no regular file.
    """
    if path.suffix and path.suffix.lower() != f".{form}":
        raise ExportError(f"{path.name} does not end in .{form}, but that is what would be in it. Formats: csv, jsonl.")
    try:
        found = path.stat()
    except OSError:
        if not path.parent.is_dir():
            raise ExportError(f"There is no directory {path.parent}.") from None
        return
    if not stat.S_ISREG(found.st_mode):
        raise ExportError(f"{path} is no regular file.")
    if not force:
        raise ExportError(f"{path} exists. Choose another name, or overwrite it (--force).")


def export_to(path: Path, run: RunDir, what: What, form: Format, *, force: bool = False) -> int:
    """Write a run's figures to a file, whole or not at all.

    Returns:
        How many rows it has.

    Raises:
        ExportError: it is not to be written there, or cannot be.
    """
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
            # Unlike a rename a link does not overwrite what came there meanwhile.
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
    """Write a run's figures to an open file, whose lines end as they are given.

    Returns:
        How many rows were written, a header not counted.

    Raises:
        OSError: they cannot be written.
    """
    count = 0
    columns = columns_of(what)
    if form == "csv":
        table = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        table.writeheader()
    encoder = msgspec.json.Encoder()
    for row in rows_of(run, what):
        if form == "csv":
            table.writerow(row)
        else:
            file.write(encoder.encode(row).decode() + "\n")
        count += 1
    return count


def columns_of(what: What) -> list[str]:
    """The columns of a table, the same for every run."""
    if what == "steps":
        lists = [name for name in Steps.__struct_fields__ if name not in ("rank", "first_step", *_base_fields())]
        return ["attempt", "time", "rank", "step", *(_STEP_COLUMNS.get(name, name) for name in lists)]
    kinds = (Evaluation,) if what == "evaluations" else _SAMPLES
    fields = [name for kind in kinds for name in kind.__struct_fields__ if name not in _base_fields()]
    return ["attempt", "time", *(["kind"] if what == "samples" else []), *dict.fromkeys(fields)]


def rows_of(run: RunDir, what: What) -> Iterator[Row]:
    """The rows of a table, in the order of the journal; reads a piece of it at a time."""
    reader, attempt = JournalReader(run.journal), 1
    while events := reader.read():
        for event in events:
            if isinstance(event, RunStarted):
                attempt = event.attempt
            elif what == "steps" and isinstance(event, Steps):
                yield from _step_rows(event, attempt)
            elif (what == "evaluations" and isinstance(event, Evaluation)) or (
                what == "samples" and isinstance(event, _SAMPLES)
            ):
                yield _plain_row(event, attempt, kind=what == "samples")


def _step_rows(event: Steps, attempt: int) -> Iterator[Row]:
    """An entry of the event each: a step, or a window of them, which stands at its last one."""
    size = len(event.losses)
    counts = event.counts or [1] * size
    if len(counts) != size or len(event.seconds) != size:
        return
    lists = {
        _STEP_COLUMNS.get(name, name): values
        for name in event.__struct_fields__
        if isinstance(values := getattr(event, name), list) and len(values) == size
    }
    lists["steps"] = counts
    # The event's time is that of its last step.
    moment = event.time - sum(each * count for each, count in zip(event.seconds, counts, strict=True))
    step = event.first_step - 1
    for place in range(size):
        step += counts[place]
        moment += event.seconds[place] * counts[place]
        row: Row = {"attempt": attempt, "time": round(moment, 6), "rank": event.rank, "step": step}
        for name, values in lists.items():
            row[name] = values[place]
        yield row


def _plain_row(event: AnyEvent, attempt: int, *, kind: bool) -> Row:
    row: Row = {"attempt": attempt, "time": event.time}
    if kind:
        row["kind"] = event.__struct_config__.tag
    for name in event.__struct_fields__:
        if name not in _base_fields():
            row[name] = _cell(getattr(event, name))
    return row


def _cell(value: object) -> object:
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, (list, tuple, dict, msgspec.Struct)):
        # What has parts stays JSON, within csv as well.
        return sanitize(msgspec.json.encode(value).decode())
    return value


def _base_fields() -> tuple[str, ...]:
    return Event.__struct_fields__
