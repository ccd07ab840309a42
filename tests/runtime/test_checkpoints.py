"""Checkpoints on a real disk: committed whole or not at all, checked before use, the right ones kept."""

from __future__ import annotations

import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest

from trainers.checkpoints import MODEL_FILE, STATE_FILE, Checkpoints, Tensors, load
from trainers.contract.config import RunConfig
from trainers.contract.events import Checkpoint
from trainers.contract.records.manifest import (
    MANIFEST,
    CheckpointError,
    checkpoint_name,
    list_checkpoints,
    newest_usable,
    read_checkpoint,
)
from trainers.contract.rundir import RunDir
from trainers.runtime.reporter import Reporter

CONFIG = RunConfig(platform="cpu", devices=2)
CLASSES = 10


class Told:
    """Stands in for a reporter."""

    def __init__(self) -> None:
        self.evaluated: tuple[int, float] | None = None
        self.checkpoints: list[Checkpoint] = []
        self.alerts: list[str] = []

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)

    def alert(self, kind: str, text: str) -> None:
        self.alerts.append(text)


def save(run: RunDir, *steps: int, accuracy: dict[int, float] | None = None, config: RunConfig = CONFIG) -> Told:
    """Save small checkpoints after the given steps, one after the other."""
    told = Told()
    with Checkpoints(run, config, 0, cast(Reporter, told)) as checkpoints:
        for step in steps:
            if accuracy and step in accuracy:
                told.evaluated = (step, accuracy[step])
            weights = np.full((50, 40), step, np.float32)
            checkpoints.save(step, {"fc.weight": weights, "count": np.array(step)}, {"ranks.random": np.arange(8)})
    return told


def steps_in(run: RunDir) -> list[int]:
    found, problems = list_checkpoints(run.checkpoints)
    assert problems == []
    return [checkpoint.manifest.step for checkpoint in found]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    directory = tmp_path / "20261120T000000-torch-ddp-net-0123"
    directory.mkdir(mode=0o700)
    return RunDir(directory)


def test_what_is_saved_is_read_again(run: RunDir) -> None:
    model: Tensors = {"a.weight": np.random.default_rng(0).random((3, 4), np.float32).T, "b": np.array(7, np.int64)}
    state: Tensors = {
        "ranks.random": np.arange(10, dtype=np.uint8).reshape(2, 5),
        "optimizer.0.step": np.array(3, np.float32),
    }
    told = Told()
    told.evaluated = (58, 0.75)
    with Checkpoints(run, CONFIG, 0, cast(Reporter, told)) as checkpoints:
        checkpoints.save(58, model, state)
    checkpoint = read_checkpoint(run.checkpoints / checkpoint_name(58))
    checkpoint.verify()
    saved = load(checkpoint)
    assert saved.step == 58
    for before, after in ((model, saved.model), (state, saved.state)):
        assert before.keys() == after.keys()
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array)
            assert after[name].dtype == array.dtype
            assert after[name].shape == array.shape
    manifest = checkpoint.manifest
    assert (manifest.run_id, manifest.epoch, manifest.accuracy, manifest.finite) == (run.run_id, 2.0, 0.75, True)
    (event,) = told.checkpoints
    assert (event.step, event.epoch, event.name, event.best) == (58, 2.0, "step-00000058", True)
    assert event.bytes == checkpoint.bytes == sum((checkpoint.path / name).stat().st_size for name in manifest.files)
    assert stat.S_IMODE(checkpoint.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in checkpoint.path.iterdir()} == {0o600}


def test_only_rank_0_writes(run: RunDir) -> None:
    with Checkpoints(run, CONFIG, 1, cast(Reporter, Told())) as checkpoints:
        checkpoints.save(1, {"a": np.ones(3, np.float32)}, {})
        checkpoints.export({"a": np.ones(3, np.float32)})
    assert list(run.path.iterdir()) == []


def test_the_newest_and_the_best_are_kept(run: RunDir) -> None:
    told = save(run, 29, 58, 87, 116, 145, accuracy={29: 0.5, 58: 0.9, 87: 0.8, 116: 0.85, 145: 0.7})
    assert steps_in(run) == [145, 116, 87, 58]
    assert [event.step for event in told.checkpoints if event.best] == [29, 58]
    config = msgspec.structs.replace(CONFIG, keep_checkpoints=1)
    save(run, 174, accuracy={174: 0.6}, config=config)
    assert steps_in(run) == [174, 58]
    assert not any(path.name.startswith(".") for path in run.checkpoints.iterdir())


def test_weights_that_are_not_finite_drive_out_nothing(run: RunDir) -> None:
    config = msgspec.structs.replace(CONFIG, keep_checkpoints=1)
    save(run, 29, config=config)
    told = Told()
    with Checkpoints(run, config, 0, cast(Reporter, told)) as checkpoints:
        checkpoints.save(40, {"a": np.array([1.0, np.nan], np.float32)}, {})
    assert steps_in(run) == [40, 29]
    checkpoint, notes = newest_usable(run.checkpoints, config, CLASSES)
    assert checkpoint.manifest.step == 29
    assert len(notes) == 1
    assert "not finite" in notes[0]


def test_what_is_saved_after_going_back_is_kept(run: RunDir) -> None:
    """The damaged checkpoint of a later step does not push out those that are saved from now on."""
    config = msgspec.structs.replace(CONFIG, keep_checkpoints=1)
    save(run, 29, 58, accuracy={29: 0.9}, config=config)
    (run.checkpoints / checkpoint_name(58) / STATE_FILE).unlink()
    assert newest_usable(run.checkpoints, config, CLASSES)[0].manifest.step == 29
    told = save(run, 40, config=config)
    assert steps_in(run) == [58, 40, 29]
    assert not told.checkpoints[0].best
    assert newest_usable(run.checkpoints, config, CLASSES)[0].manifest.step == 40


def test_the_same_step_again_takes_the_place_of_the_first(run: RunDir) -> None:
    save(run, 29)
    file = run.checkpoints / checkpoint_name(29) / MODEL_FILE
    file.write_bytes(b"damaged")
    save(run, 29)
    newest_usable(run.checkpoints, CONFIG, CLASSES)
    assert [path.name for path in run.checkpoints.iterdir()] == [checkpoint_name(29)]


@pytest.mark.parametrize("how", ["flipped", "shorter", "gone", "manifest gone", "manifest damaged", "manifest moved"])
def test_a_damaged_checkpoint_is_passed_over_and_named(run: RunDir, how: str) -> None:
    save(run, 29, 58)
    newest = run.checkpoints / checkpoint_name(58)
    data = bytearray((newest / STATE_FILE).read_bytes())
    match how:
        case "flipped":
            data[len(data) // 2] ^= 1
            (newest / STATE_FILE).write_bytes(data)
        case "shorter":
            (newest / STATE_FILE).write_bytes(data[:-1])
        case "gone":
            (newest / MODEL_FILE).unlink()
        case "manifest gone":
            (newest / MANIFEST).unlink()
        case "manifest damaged":
            (newest / MANIFEST).write_bytes((newest / MANIFEST).read_bytes()[:-20])
        case "manifest moved":
            (newest / MANIFEST).write_bytes((run.checkpoints / checkpoint_name(29) / MANIFEST).read_bytes())
    checkpoint, notes = newest_usable(run.checkpoints, CONFIG, CLASSES)
    assert checkpoint.manifest.step == 29
    assert len(notes) == 1
    assert str(newest) in notes[0]
    (run.checkpoints / checkpoint_name(29) / STATE_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint that can be used: .*step-0000005.*step-00000029"):
        newest_usable(run.checkpoints, CONFIG, CLASSES)


def test_every_flipped_bit_is_noticed(run: RunDir) -> None:
    save(run, 29)
    file = run.checkpoints / checkpoint_name(29) / STATE_FILE
    good = file.read_bytes()
    checkpoint = read_checkpoint(file.parent)
    for position in range(len(good)):
        file.write_bytes(good[:position] + bytes([good[position] ^ (1 << position % 8)]) + good[position + 1 :])
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.verify()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": "jax-pmap"}, "backend = torch-ddp, not jax-pmap"),
        ({"model": "mlp"}, "model = net, not mlp"),
        ({"optimizer": "sgd"}, "optimizer = adam, not sgd"),
        ({"seed": 1}, "seed = 0, not 1"),
        ({"global_batch_size": 96}, "global_batch_size = 48, not 96"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(run: RunDir, changes: dict[str, object], words: str) -> None:
    save(run, 29)
    with pytest.raises(CheckpointError, match=words):
        newest_usable(run.checkpoints, msgspec.structs.replace(CONFIG, **changes), CLASSES)
    with pytest.raises(CheckpointError, match="tells 10 classes apart, but digits has 3"):
        newest_usable(run.checkpoints, CONFIG, 3)


def test_without_a_checkpoint_that_is_said(run: RunDir) -> None:
    with pytest.raises(CheckpointError, match=r"there is no checkpoint that can be used$"):
        newest_usable(run.checkpoints, CONFIG, CLASSES)


def test_a_manifest_cannot_point_elsewhere(run: RunDir) -> None:
    save(run, 29)
    manifest = run.checkpoints / checkpoint_name(29) / MANIFEST
    manifest.write_text(manifest.read_text().replace(f'"{MODEL_FILE}"', '"../../run.toml"'))
    with pytest.raises(CheckpointError, match="does not belong there"):
        read_checkpoint(manifest.parent)


WRITERS = """
import os, pathlib, shutil, signal, sys
from tests.runtime.test_checkpoints import save
from trainers.contract.rundir import RunDir

def write(run, kill_at):
    calls = 0

    def deadly(function):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)
        return call

    save(run, 29)
    os.fsync, os.open = deadly(os.fsync), deadly(os.open)
    pathlib.Path.rename, shutil.rmtree = deadly(pathlib.Path.rename), deadly(shutil.rmtree)
    save(run, 58, 87, 116, 145)

kill_at, ended = 1, -1
while ended:
    run = RunDir(pathlib.Path(sys.argv[1], str(kill_at)))
    run.path.mkdir()
    if not (writer := os.fork()):
        try:
            write(run, kill_at)
            os._exit(0)
        finally:
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1])
    print(kill_at, ended)
    assert ended in (0, -signal.SIGKILL)
    kill_at += 5
"""
"""Writers, each killed at a later call than the one before, until one comes to its end; says how each ended.

They are forked by a process of its own: to start Python for each takes longer than all that is tested here.
"""


def test_killed_at_any_moment_the_last_committed_one_is_there(tmp_path: Path) -> None:
    """A writer that is killed at every call by which it changes the disk, one after the other."""
    root, steps = tmp_path / "runs", set[int]()
    root.mkdir()
    told = subprocess.run([sys.executable, "-c", WRITERS, str(root)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    ends = [line.split() for line in told.stdout.splitlines()]
    assert ends[-1][1] == "0"
    for kill_at, _ in ends:
        run = RunDir(root / kill_at)
        checkpoint, notes = newest_usable(run.checkpoints, CONFIG, CLASSES)
        assert notes == []
        np.testing.assert_array_equal(load(checkpoint).model["fc.weight"], np.float32(checkpoint.manifest.step))
        steps.add(checkpoint.manifest.step)
        # The next attempt clears away what was half-written.
        save(run, 174)
        assert not any(path.name.startswith(".") for path in run.checkpoints.iterdir())
    print(f"\nkilled at every fifth of {ends[-1][0]} moments; went on from {sorted(steps)}")
    assert steps == {29, 58, 87, 116, 145}


def test_a_full_disk_leaves_the_checkpoints_before_it(run: RunDir) -> None:
    save(run, 29)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        told = save(run, 58)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert told.checkpoints == []
    (alert,) = told.alerts
    assert alert.startswith("the checkpoint after step 58 was not saved: File too large")
    assert [path.name for path in run.checkpoints.iterdir()] == [checkpoint_name(29)]
    newest_usable(run.checkpoints, CONFIG, CLASSES)
    assert [event.step for event in save(run, 58).checkpoints] == [58]
