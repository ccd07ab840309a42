"""A run's figures as rows: what the formats that are tables have in common.

The journal is read piece by piece. A resumed run has steps that were taken twice, after the checkpoint that it resumed
from: the rows have both, and `attempt` distinguishes them. Epochs have what counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from tuiapp.library.exporters import NO_METRICS, What
from tuiapp.trainers.contract.events import (
    AnyEvent,
    DeviceSample,
    Event,
    HostSample,
    Media,
    Metrics,
    Predictions,
    RankSample,
    RunStarted,
)
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.metrics import HELD_OUT, group_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.epochs import Epoch
from tuiapp.trainers.state.snapshot import read_run
from tuiapp.trainers.state.text import sanitize
from tuiapp.view.epochs import epoch_facts
from tuiapp.view.predictions import class_name, is_matrix

Row: TypeAlias = dict[str, object]

_PLACE = ("attempt", "time", "rank", "step", "steps", "joined")
"""Columns before those of the metrics: an entry's last step, how many it covers, and how many reports it joins."""

_MEDIA = ("attempt", "time", "rank", "step", "name", "kind", "file", "caption")

SAMPLES = (DeviceSample, RankSample, HostSample)


def columns_of(run: RunDir, what: What) -> list[str]:
    """Returns the columns of a table; those of metrics in order of appearance, which reads the journal."""
    if what == "samples":
        fields = [name for kind in SAMPLES for name in kind.__struct_fields__ if name not in Event.__struct_fields__]
        return ["attempt", "time", "kind", *dict.fromkeys(fields)]
    if what == "predictions":
        return ["attempt", "time", "step", "label", "predicted", "count"]
    if what == "epochs":
        return list(epoch_facts(Epoch(1, 1, 1.0)))
    if what == "media":
        return list(_MEDIA)
    names, columns = dict.fromkeys(_PLACE), _Columns()
    for event, _ in _events(run):
        if isinstance(event, Metrics):
            for name in event.values:
                if in_table(name, what):
                    names |= dict.fromkeys(columns.of(name, end) for end, bound in _BOUNDS if bound(event, name))
    return list(names)


def rows_of(run: RunDir, what: What) -> Iterator[Row]:
    """Yields the rows of a table, in the journal's order; reads it piece by piece."""
    if what == "epochs":
        yield from map(epoch_facts, read_run(run).curves.joined().last_epochs())
        return
    columns = _Columns()
    for event, attempt in _events(run):
        if isinstance(event, Metrics):
            if what not in NO_METRICS:
                yield from _metric_rows(event, attempt, what, columns)
        elif isinstance(event, Predictions):
            if what == "predictions":
                yield from _prediction_rows(event, attempt)
        elif isinstance(event, Media):
            if what == "media":
                yield {name: getattr(event, name, attempt) for name in _MEDIA}
        elif what == "samples" and isinstance(event, SAMPLES):
            yield _plain_row(event, attempt)


def _events(run: RunDir) -> Iterator[tuple[AnyEvent, int]]:
    attempt = 1
    for event in JournalReader(run.journal).rest():
        if isinstance(event, RunStarted):
            attempt = event.attempt
        yield event, attempt


def in_table(name: str, what: str) -> bool:
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


_BOUNDS: tuple[tuple[str, Callable[[Metrics, str], Sequence[float | None] | None]], ...] = (
    ("", lambda event, name: list(map(_number, event.values[name]))),
    ("_min", lambda event, name: (event.lows or {}).get(name)),
    ("_max", lambda event, name: (event.highs or {}).get(name)),
    ("_last", lambda event, name: _lasts(event, name)),
)
"""Suffix of a column's name -> its values."""


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _lasts(event: Metrics, name: str) -> list[float] | None:
    if (column := (event.lasts or {}).get(name)) is None:
        return None
    # Null is infinite where the entry is.
    return [_number(mean if last is None else last) for last, mean in zip(column, event.values[name], strict=False)]


def _metric_rows(event: Metrics, attempt: int, what: What, columns: _Columns) -> Iterator[Row]:
    names = [name for name in event.values if in_table(name, what)]
    if not names:
        return
    size = len(event.values[names[0]])
    reported = [(name, end, bound(event, name)) for name in names for end, bound in _BOUNDS]
    lists = {columns.of(name, end): values for name, end, values in reported if values}
    lists = {name: values for name, values in lists.items() if len(values) == size}
    joined = event.joined()
    for index, (step, moment) in enumerate(event.places()):
        count = event.counts[index] if event.counts else 1
        row: Row = {
            "attempt": attempt, "time": round(moment, 6), "rank": event.rank, "step": step, "steps": count,
            "joined": joined[index],
        }  # fmt: skip
        for name, values in lists.items():
            row[name] = values[index]
        yield row


def _prediction_rows(event: Predictions, attempt: int) -> Iterator[Row]:
    matrix = is_matrix(event)
    for label, row in enumerate(event.counts):
        for index, count in enumerate(row):
            predicted = class_name(event, index) if matrix else ("right", "wrong")[index > 0]
            yield {
                "attempt": attempt, "time": event.time, "step": event.step, "label": class_name(event, label),
                "predicted": predicted, "count": count,
            }  # fmt: skip


def _plain_row(event: AnyEvent, attempt: int) -> Row:
    row: Row = {"attempt": attempt, "time": event.time, "kind": event.__struct_config__.tag}
    for name in event.__struct_fields__:
        if name not in Event.__struct_fields__:
            row[name] = _cell(getattr(event, name))
    return row


def _cell(value: object) -> object:
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, (list, tuple, dict, msgspec.Struct)):
        # Nested values stay JSON, within csv as well.
        return sanitize(msgspec.json.encode(value).decode())
    return value
