"""A checkpoint that is sent in parts arrives as it was, whatever its files' sizes, and leaves its directory never."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.handed_checkpoint import PART_BYTES, HandedCheckpoint, parts
from tuiapp.trainers.run.wire import Part

FILES = {"model.safetensors": b"ab" * PART_BYTES + b"c", "state.safetensors": b"d" * PART_BYTES, "manifest.json": b"{}"}


def test_it_arrives_as_it_was_and_replaces_the_one_before(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints/step-00000005"
    checkpoint.mkdir(parents=True)
    for name, data in FILES.items():
        (checkpoint / name).write_bytes(data)
    run = RunDir(tmp_path / "node-b")
    HandedCheckpoint(run, "step-00000003")
    given = HandedCheckpoint(run, checkpoint.name)
    sent = list(parts(checkpoint))
    assert max(len(part.data) for part in sent) == PART_BYTES
    assert [given.take(part) for part in sent] == [*[False] * (len(sent) - 1), True]
    assert {path.name: path.read_bytes() for path in given.path.iterdir()} == FILES
    assert list(run.checkpoints.iterdir()) == [given.path]


@pytest.mark.parametrize("name", ["../model.safetensors", "/tmp/model.safetensors"])
def test_no_file_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    given = HandedCheckpoint(RunDir(tmp_path), "../../step-00000005")
    given.take(Part(name, b"a"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [
        tmp_path / "checkpoints/step-00000005/model.safetensors"
    ]
