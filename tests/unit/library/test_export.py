"""Exports for other programs, read back by those programs' own readers."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import msgspec
import pyarrow.parquet
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from tests.kit import histories as h
from tests.kit import interrupted, own_metrics
from tests.kit.recorded import CONFIG, record
from tests.kit.wandb_file import wandb_history
from tuiapp.library.export import ExportError, export_to
from tuiapp.trainers.contract.events import AnyEvent, Metrics
from tuiapp.trainers.contract.rundir import RunDir

RUN_ID = "20261120T101500-torch-ddp-net-3fa1"


@pytest.fixture
def completed(tmp_path: Path) -> RunDir:
    return record(tmp_path / "runs", RUN_ID, h.completed())


def test_parquet_has_the_rows_of_jsonl(completed: RunDir, tmp_path: Path) -> None:
    for what in ("steps", "evaluations", "metrics", "samples"):
        count = export_to(tmp_path / f"{what}.parquet", completed, what, "parquet")
        export_to(tmp_path / f"{what}.jsonl", completed, what, "jsonl")
        rows = [json.loads(line) for line in (tmp_path / f"{what}.jsonl").read_text().splitlines()]
        table = pyarrow.parquet.read_table(tmp_path / f"{what}.parquet")
        assert count == len(rows) > 0
        known = [{name: value for name, value in row.items() if value is not None} for row in rows]
        assert [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()] == known
    assert {str(table.schema.field(name).type) for name in ("attempt", "rss_bytes", "threads")} == {"int64"}
    assert {str(table.schema.field(name).type) for name in ("time", "cpu_percent")} == {"double"}


def test_names_that_a_spreadsheet_or_a_screen_changes(tmp_path: Path) -> None:
    same = ("a\u200bb", "ab", "ab_min")
    formulas = ("=1+1", "+x", "-x", "@x")
    values: dict[str, list[float | None]] = {name: [float(n), -1.0] for n, name in enumerate([*same, *formulas])}
    reported = Metrics(rank=0, first_step=1, values=values, lows={"ab": [7.0, 8.0]})
    run = record(tmp_path / "runs", RUN_ID, [*h.completed()[:1], reported])
    export_to(tmp_path / "all.csv", run, "metrics", "csv")
    with (tmp_path / "all.csv").open(newline="") as file:
        header, first, second = csv.reader(file)
    assert header[6:] == ["ab", "ab (2)", "ab_min", "ab_min (2)", *(f"'{name}" for name in formulas)]
    assert first[6:] == ["0.0", "1.0", "7.0", "2.0", "3.0", "4.0", "5.0", "6.0"]
    # Numbers below 0 are no formulas.
    assert second[6] == "-1.0"
    export_to(tmp_path / "all.jsonl", run, "metrics", "jsonl")
    row = json.loads((tmp_path / "all.jsonl").read_text().splitlines()[0])
    assert (row["ab"], row["ab (2)"], row["=1+1"]) == (0.0, 1.0, 3.0)


def test_tensorboard_reads_a_curve_per_rank(completed: RunDir, tmp_path: Path) -> None:
    target = tmp_path / "board"
    assert export_to(target, completed, "metrics", "tensorboard") == 2 * 290 + 10
    assert sorted(os.listdir(target))[1:] == ["rank1"]
    first, second = _read(target), _read(target / "rank1")
    for rank, one in enumerate((first, second)):
        losses = one.Scalars("loss")
        assert [each.step for each in losses] == [*range(1, 291)]
        assert [each.value for each in losses] == pytest.approx([h.loss_at(step, rank) for step in range(1, 291)])
    rows = tmp_path / "rows.jsonl"
    export_to(rows, completed, "steps", "jsonl")
    times = [row["time"] for row in map(json.loads, rows.read_text().splitlines()) if row["rank"] == 1]
    assert [each.wall_time for each in second.Scalars("loss")] == pytest.approx(times)
    assert [each.step for each in first.Scalars("test/accuracy")] == [29 * epoch for epoch in range(1, 11)]
    assert "test/accuracy" not in second.Tags()["scalars"]
    start = HParamsPluginData.FromString(
        first.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    ).session_start_info
    assert start.group_name == RUN_ID
    assert start.hparams["learning_rate"].number_value == CONFIG.learning_rate
    assert start.hparams["model"].string_value == "net"
    assert start.hparams["compile"].WhichOneof("kind") == "bool_value"


SLOW_SCRIPT: list[AnyEvent] = [
    *own_metrics.running(2, last_step=20, every=1, names=["loss"]),
    msgspec.structs.replace(own_metrics.started(2), attempt=2, resumed_from=None),
    *(own_metrics.logged(step, ["loss"], rank=rank, seconds=20.0) for step in range(12, 25) for rank in (0, 1)),
]
"""Each step is an event of its own, and which one it goes on from is known from the second."""


@pytest.mark.parametrize(
    "events", [[*h.running(last_step=80), *interrupted.resumed(step=72)], SLOW_SCRIPT], ids=["built in", "a script"]
)
def test_repeated_steps_replace_the_old_curve(events: list[AnyEvent], tmp_path: Path) -> None:
    run = record(tmp_path / "runs", RUN_ID, events)
    export_to(tmp_path / "board", run, "metrics", "tensorboard")
    for rank, place in enumerate(("board", "board/rank1")):
        wanted: dict[int, float | None] = {}
        for event in events:
            if isinstance(event, Metrics) and event.rank == rank and "loss" in event.values:
                wanted |= zip((step for step, _ in event.places()), event.values["loss"], strict=True)
        found = [(each.step, each.value) for each in _read(tmp_path / place).Scalars("loss")]
        assert found == [(step, pytest.approx(loss)) for step, loss in sorted(wanted.items())]


@pytest.mark.parametrize("form", ["tensorboard", "parquet"])
def test_a_full_disk_leaves_nothing(
    form: str, completed: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource
    import signal

    # A real limit: what is written beyond it fails.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ExportError, match=r"Cannot write .*File too large"):
            export_to(tmp_path / "x", completed, "metrics", form)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(os.listdir(tmp_path)) == ["home", "runs"]


def test_only_an_earlier_export_is_overwritten(completed: RunDir, tmp_path: Path) -> None:
    target = tmp_path / "board"
    export_to(target, completed, "metrics", "tensorboard")
    with pytest.raises(ExportError, match=r"board exists. Choose another name, or overwrite it \(--force\)"):
        export_to(target, completed, "metrics", "tensorboard")
    assert export_to(target, completed, "evaluations", "tensorboard", force=True) == 10
    assert "loss" not in _read(target).Tags()["scalars"]
    (target / "thesis.tex").write_text("x")
    with pytest.raises(ExportError, match=r"other files than an export, such as .*thesis.tex"):
        export_to(target, completed, "metrics", "tensorboard", force=True)
    assert (target / "thesis.tex").exists()
    assert sorted(os.listdir(tmp_path)) == ["board", "home", "runs"]


@pytest.mark.nightly
def test_an_offline_run_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    events = [*h.running(last_step=80), *interrupted.resumed(step=72)]
    run = record(tmp_path / "runs", RUN_ID, events, msgspec.structs.replace(CONFIG, learning_rate=0.25))
    count = export_to(tmp_path / "wb", run, "metrics", "wandb-offline")
    (made,) = (tmp_path / "wb").iterdir()
    assert made.name.startswith("offline-run-")
    history = wandb_history(made / f"run-{RUN_ID}.wandb")
    # Both ranks in one row, in order, none of them twice.
    assert [row["step"] for row in history] == [*range(1, len(history) + 1)]
    assert count >= 2 * len(history)
    assert history[71]["loss/rank1"] == pytest.approx(h.loss_at(72, 1))
    assert history[74]["loss/rank1"] == 0.3
    assert history[28]["test/accuracy"] > 0
    assert all("loss" not in row for row in history)
    assert history[0]["_timestamp"] == pytest.approx(h.START, abs=60)
    with pytest.raises(ExportError, match="exists"):
        export_to(tmp_path / "wb", run, "metrics", "wandb-offline")
    assert export_to(tmp_path / "wb", run, "evaluations", "wandb-offline", force=True) < count
    assert len(os.listdir(tmp_path / "wb")) == 1


def _read(directory: Path) -> EventAccumulator:
    found = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    found.Reload()
    return found
