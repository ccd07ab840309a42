"""What a script logs is what an export gives, whatever the order, the repetitions, the names and the values."""

from __future__ import annotations

import csv
import json
import math
import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import histories as h
from tests.kit.recorded import record
from tuiapp.library.exporters import EXPORTERS, csv_table, jsonl
from tuiapp.library.exporters.tables import rows_of
from tuiapp.trainers.contract.events import AnyEvent, Metrics
from tuiapp.trainers.contract.metrics import MAX_STEP, shortest
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.step_batch import Budget
from tuiapp.trainers.script.client import Client

NAMES = ("loss", "epoch", "step_time", "examples", "val/f1")
Logged: TypeAlias = Sequence[tuple[int, dict[str, float]]]

_steps = st.integers(0, 12) | st.integers(0, MAX_STEP)
_values = st.floats() | st.sampled_from([1.0, 2.0, math.nan, math.inf, -math.inf, 1e31, -0.0])
_rows = st.lists(
    st.tuples(_steps, st.dictionaries(st.sampled_from(NAMES), _values, min_size=1)), min_size=1, max_size=40
)
_number = count()


class Script:
    """The client of a script whose supervisor is this test."""

    def __init__(self, directory: Path) -> None:
        name = f"tuiapp-test-{os.getpid()}-{next(_number)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"\0{name}")
            listener.listen()
            self.client = Client(RunDir(directory), 0, name, announce=False)
            self._socket, _ = listener.accept()

    def events(self) -> Iterator[AnyEvent]:
        """What it sends until it is closed."""
        self.client.close()
        messages = wire.rank_messages(self._socket.fileno())
        while not messages.ended:
            yield from (one for one in messages.read() if isinstance(one, Metrics))
        assert not messages.dropped
        self._socket.close()


def exported(directory: Path, logged: Logged, *, budget: Budget | None = None) -> RunDir:
    """The run whose journal has what a script has logged."""
    script = Script(directory)
    if budget is not None:
        script.client._budget = budget
    # All at once, as a loop does that takes no time.
    script.client.backlog.extend(logged)
    number = next(_number)
    return record(directory, f"20261120T101500-script-train-{number:04x}", [h.started(), *script.events()])


def by_metric(logged: Logged) -> dict[str, list[tuple[int, str]]]:
    """Of each metric its steps and values in their order, NaN like NaN and -0.0 unlike 0.0."""
    found = defaultdict(list)
    for step, values in logged:
        for name, value in values.items():
            found[name].append((step, repr(float(value))))
    return found


def _logged(rows: Iterable[Mapping[str, Any]]) -> Logged:
    return [
        (int(row["step"]), {name: float(row[name]) for name in NAMES if row.get(name) not in (None, "")})
        for row in rows
    ]


@given(logged=_rows)
def test_every_format_gives_what_was_logged(logged: Logged, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp()
    run, wanted = exported(directory, logged), by_metric(logged)
    assert by_metric(_logged(rows_of(run, "metrics"))) == wanted
    csv_table.write_rows(text := StringIO(newline=""), run, "metrics")
    assert by_metric(_logged(csv.DictReader(StringIO(text.getvalue())))) == wanted
    jsonl.write_rows(text := StringIO(), run, "metrics")
    rows = [json.loads(line, parse_constant=pytest.fail) for line in text.getvalue().splitlines()]
    assert by_metric(_logged(rows)) == wanted
    EXPORTERS["parquet"].write(path := directory / f"{next(_number)}.parquet", run, "metrics")
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert by_metric(_logged(rows)) == wanted


@given(logged=_rows, left=st.integers(1, 8))
def test_what_is_joined_is_all_there(logged: Logged, left: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = exported(tmp_path_factory.getbasetemp(), logged, budget=Budget(monotonic(), 0.0, left))
    rows: list[dict[str, Any]] = list(rows_of(run, "metrics"))
    for name in NAMES:
        values = [values[name] for _, values in logged if name in values]
        entries = [row for row in rows if name in row]
        assert sum(row["joined"] for row in entries) == len(values)
        bounds = [row.get(f"{name}_{end}", row[name]) for row in entries for end in ("min", "max")]
        found, wanted = ([one for one in some if one is not None and math.isfinite(one)] for some in (bounds, values))
        if name != "examples" and wanted:
            assert (min(found), max(found)) == (min(wanted), max(wanted))


@given(value=st.floats(width=32))
def test_single_precision(value: float) -> None:
    assert repr(np.float32(shortest(value))) == repr(np.float32(value))
    assert shortest(0.10000000149011612) == 0.1
    assert shortest(0.1) == 0.1
