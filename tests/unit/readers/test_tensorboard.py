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
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer import event_file_writer
from torch.utils.tensorboard import SummaryWriter

from tests.kit import histories as h
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import Metrics, Purged
from tuiapp.trainers.contract.media import Content, decode, encode_png
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.readers.tensorboard import FoundEventFiles, Purge, Scalar
from tuiapp.trainers.run import script_metrics
from tuiapp.trainers.run.script_metrics import ScriptMetrics
from tuiapp.trainers.state.curves import Curves


def of(found: Sequence[Scalar | Purge], name: str) -> list[tuple[int, float | list[Content]]]:
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
    assert of(found, "text") == [(step, [("text", b"hello", "")]) for step in range(3)]
    pictures = [value[0][1] for _, value in of(found, "small") if isinstance(value, list)]
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


def test_pictures_and_texts_as_tensorflow_writes_them(tmp_path: Path) -> None:
    files, picture = FoundEventFiles(tmp_path), encode_png(np.zeros((3, 4, 3), np.uint8))
    pictures = TensorProto(dtype="DT_STRING", string_val=[b"4", b"3", picture, picture])
    plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="images"))
    writer = event_file_writer.EventFileWriter(str(tmp_path))
    for summary in (
        Summary(value=[Summary.Value(tag="weights", tensor=pictures, metadata=plugin)]),
        text_pb("notes", np.array([["a", "b"], ["1", "2"]])),
        scalar_pb("epoch_loss", 0.5),
        histogram_pb("kernel", np.arange(9.0)),
    ):
        writer.add_event(Event(step=7, summary=summary))
    writer.close()
    assert [(one.name, one.value) for one in files.read() if isinstance(one, Scalar)] == [
        ("weights", [("image", picture, "")] * 2),
        ("notes", [("text", b"a\nb\n1\n2", "")]),
        ("epoch_loss", 0.5),
    ]


def test_values_have_the_time_at_which_they_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(script_metrics, "time", lambda: now)
    found = ScriptMetrics(RunConfig(backend="script", script="a.py", tensorboard_dir=str(tmp_path)), RunDir(tmp_path))
    with SummaryWriter(str(tmp_path)) as writer:
        # The first was copied from an earlier run, the last is by a clock that is ahead.
        for step, moment in enumerate((500.0, 1500.5, 3000.0)):
            writer.add_scalar("loss", step, step, walltime=moment)
            writer.add_scalar("accuracy", step, step, walltime=moment)
    now = 2000.0
    times = {event.last_step: event.time for event in found.finish() if isinstance(event, Metrics)}
    assert times == {0: 1000.0, 1: 1500.5, 2: 2000.0}


def test_each_rank_has_a_main_directory(tmp_path: Path) -> None:
    files = FoundEventFiles(tmp_path, rank_of=lambda pid: pid - 11)
    for place, pid in (("one", 11), ("two", 12), ("two/deep", 12)):
        with SummaryWriter(str(tmp_path / place)) as writer:
            writer.add_scalar("loss", pid, 1)
        for path in (tmp_path / place).glob("*tfevents*"):
            path.rename(path.with_name(path.name.replace(f".{os.getpid()}.", f".{pid}.")))
    names = {(one.pid, one.name) for one in files.read() if isinstance(one, Scalar)}
    assert names == {(11, "loss"), (12, "loss"), (12, "deep/loss")}


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
