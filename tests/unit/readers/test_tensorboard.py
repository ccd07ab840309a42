"""Scalars of event files as PyTorch writes them."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from torch.utils.tensorboard import SummaryWriter

from tests.kit import histories as h
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import Metrics, Purged
from tuiapp.trainers.contract.media import Content, decode
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.readers.tensorboard import FoundEventFiles, Purge, Scalar
from tuiapp.trainers.run.script_metrics import ScriptMetrics
from tuiapp.trainers.state.curves import Curves


def of(found: Sequence[Scalar | Purge], name: str) -> list[tuple[int, float | Content]]:
    return [(one.step, one.value) for one in found if isinstance(one, Scalar) and one.name == name]


def test_scalars_of_every_kind_and_nothing_else(tmp_path: Path) -> None:
    files = FoundEventFiles(tmp_path / "logs")
    with SummaryWriter(str(tmp_path / "logs" / "version_0")) as writer:
        for step in range(3):
            writer.add_scalar("Loss/train", 0.5 * step, step)
            writer.add_scalar("tensor", step, step, new_style=True)
            writer.add_scalar("double", 0.1 * step, step, double_precision=True)
            writer.add_scalars("both", {"a": step, "b": -step}, step)
            writer.add_histogram("histogram", np.arange(10), step)
            writer.add_text("text", "hello", step)
            writer.add_image("small", np.full((3, 9, 9), step / 2), step)
            # Longer than what is read at once.
            writer.add_image("image", np.random.default_rng(0).random((3, 800, 800)), step)
        writer.add_hparams({"lr": 0.1}, {"accuracy": 0.5}, run_name=".")
        writer.add_hparams({"lr": 0.1}, {"hparam/f1": 0.25}, global_step=2)
        writer.add_scalar("not a number", float("nan"), 3)
        writer.add_scalar("large step", 1, (1 << 40) + 1)
    found = [one for one in files.read() if isinstance(one, Scalar)]
    assert {scalar.name for scalar in found} == {
        "Loss/train", "tensor", "double", "both_a/both", "both_b/both", "accuracy", "hparam/f1", "not a number",
        "large step", "text", "small",
    }  # fmt: skip
    assert of(found, "text") == [(step, ("text", b"hello", "")) for step in range(3)]
    pictures = [value[1] for _, value in of(found, "small") if isinstance(value, tuple)]
    assert [int(decode(picture).max()) for picture in pictures] == [0, 127, 255]
    assert of(found, "Loss/train") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert of(found, "tensor") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert of(found, "double") == [(0, 0.0), (1, pytest.approx(0.1)), (2, pytest.approx(0.2))]
    assert of(found, "hparam/f1") == [(2, 0.25)]
    assert of(found, "both_b/both") == [(0, 0.0), (1, -1.0), (2, -2.0)]
    assert of(found, "large step") == [((1 << 40) + 1, 1.0)]
    assert {scalar.pid for scalar in found} == {os.getpid()}
    assert files.damaged == []
    assert files.read() == []


def test_what_is_there_before_is_skipped_and_what_grows_is_read_on(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as old:
        old.add_scalar("loss", 1, 1)
    files = FoundEventFiles(tmp_path)
    assert files.read() == []
    with SummaryWriter(str(tmp_path)) as writer:
        for step in (2, 3):
            writer.add_scalar("loss", step, step)
            writer.flush()
            assert of(files.read(), "loss") == [(step, step)]


def test_a_record_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "whole")) as writer:
        for step in range(3):
            writer.add_scalar("loss", step, step)
    (whole,) = (tmp_path / "whole").iterdir()
    data, part = whole.read_bytes(), tmp_path / "part" / whole.name
    part.parent.mkdir()
    files, found = FoundEventFiles(part.parent), list[Scalar | Purge]()
    with part.open("wb", buffering=0) as file:
        for place in range(len(data)):
            file.write(data[place : place + 1])
            found += files.read()
    assert of(found, "loss") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert files.damaged == []


@pytest.mark.parametrize(
    "data",
    [random.Random(1).randbytes(1000), struct.pack("<QI", 3, 0) + b"\x2f\xff\xff" + bytes(4), b"\xff" * 100],
    ids=["random", "length", "ones"],
)
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, data: bytes) -> None:
    files = FoundEventFiles(tmp_path)
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(data)
    assert files.read() == []
    assert files.damaged in ([path], [])
    path.write_bytes(data * 2)
    assert files.read() == []


@pytest.mark.parametrize("again", [False, True], ids=["in one process", "started again"])
def test_what_a_restart_purges_is_what_tensorboard_drops(
    tmp_path: Path, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files are read in the order of their names, which end with a number.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    logs, run, curves = tmp_path / "logs", RunDir(tmp_path), Curves()
    config = RunConfig(backend="script", script="train.py", tensorboard_dir=str(logs))

    def attempt(number: int, begins: Callable[[], None]) -> None:
        found = ScriptMetrics(config, run)
        begins()
        begun = h.started(1, attempt=number, resumed_from=None if number > 1 else 0)
        curves.fold([replace(begun, config=to_toml_values(config), steps_per_epoch=0)] * (number == 1 or again))
        curves.fold([one for one in found.finish() if isinstance(one, Metrics | Purged)])

    def first() -> None:
        with SummaryWriter(str(logs)) as writer, SummaryWriter(str(logs / "other")) as other:
            for step in range(10):
                writer.add_scalar("loss", 1 / (step + 1), step)
                writer.add_scalar("only/first", step, step)
                other.add_scalar("loss", -step, step)

    def second() -> None:
        with SummaryWriter(str(logs), purge_step=5, filename_suffix=".second") as writer:
            for step in (7, 8):
                writer.add_scalar("loss", 0.1 * step, step)

    attempt(1, first)
    attempt(2, second)
    for directory, prefix in ((logs, ""), (logs / "other", "other/")):
        theirs = EventAccumulator(str(directory)).Reload()
        for tag in theirs.Tags()["scalars"]:
            series = curves[0, prefix + tag]
            ours = [*zip(series.middles().tolist(), series.means().tolist(), strict=True)]
            assert ours == [(one.step, pytest.approx(one.value)) for one in theirs.Scalars(tag)], tag
    assert [int(step) for step in curves[0, "loss"].middles()] == [0, 1, 2, 3, 4, 7, 8]
