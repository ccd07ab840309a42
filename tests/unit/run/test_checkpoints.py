"""Checkpoints on a real disk: saved whole or not at all, checked before use, and the right ones kept."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from tests.kit.small_checkpoints import CLASSES, CONFIG, Told, newest_usable, save, steps_in
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.manifest import (
    MANIFEST,
    MODEL_FILE,
    CheckpointError,
    checkpoint_name,
    list_checkpoints,
    read_checkpoint,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.checkpoints import STATE_FILE, Checkpoints, load
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.tensor_files import Tensors


def test_what_is_saved_is_read_again(run: RunDir) -> None:
    model: Tensors = {"a.weight": np.random.default_rng(0).random((3, 4), np.float32).T, "b": np.array(7, np.int64)}
    state: Tensors = {
        "ranks.random": np.arange(10, dtype=np.uint8).reshape(2, 5),
        "optimizer.0.step": np.array(3, np.float32),
    }
    told = Told()
    told.evaluated = (58, Evaluated(0.5, 0.75))
    with Checkpoints(run, make_plan(CONFIG), 0, cast(Reporter, told), set()) as checkpoints:
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
    assert (manifest.run_id, manifest.epoch, manifest.loss, manifest.accuracy) == (run.run_id, 2.0, 0.5, 0.75)
    assert manifest.finite
    (event,) = told.checkpoints
    assert (event.step, event.epoch, event.name, event.best) == (58, 2.0, "step-00000058", True)
    assert event.bytes == checkpoint.bytes == sum((checkpoint.path / name).stat().st_size for name in manifest.files)
    assert stat.S_IMODE(checkpoint.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in checkpoint.path.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, (39, 9)),
        ({"accumulate": 3}, (39, 9)),
        ({"accumulate": 4}, ()),
        ({"devices": 1}, ()),
        ({"shares": "equal"}, ()),
    ],
)
def test_measured_shares_are_kept_where_they_still_divide(
    run: RunDir, changes: dict[str, Any], kept: tuple[int, ...]
) -> None:
    config = msgspec.structs.replace(CONFIG, shares="measured", devices=2, global_batch_size=48)
    with Checkpoints(run, make_plan(config), 0, cast(Reporter, Told()), set()) as checkpoints:
        checkpoints.measured = 39, 9
        checkpoints.save(58, {"b": np.array(7, np.int64)}, {})
    plan = make_plan(msgspec.structs.replace(config, **changes))
    with Checkpoints(run, plan, 0, cast(Reporter, Told()), set(), run.checkpoints / checkpoint_name(58)) as resumed:
        assert resumed.measured == kept


def test_only_rank_0_writes(run: RunDir) -> None:
    with Checkpoints(run, make_plan(CONFIG), 1, cast(Reporter, Told()), set()) as checkpoints:
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


@pytest.mark.parametrize("by", ["accuracy", "loss"])
def test_of_equal_ones_the_other_figure_decides(run: RunDir, by: str) -> None:
    """What is kept is what is marked, and what a resumed attempt goes on from."""
    config = msgspec.structs.replace(CONFIG, keep_checkpoints=1, best=by)
    losses = {29: 0.5, 58: 0.4, 87: 0.4, 116: 0.4, 145: 0.6}
    accuracies = {29: 0.9, 58: 0.9, 87: 0.8, 116: 0.9, 145: 0.8}
    told = save(run, *losses, loss=losses, accuracy=accuracies, config=config)
    assert [event.step for event in told.checkpoints if event.best] == [29, 58]
    assert steps_in(run) == [145, 58]
    again = save(run, 174, 203, loss={174: 0.5, 203: 0.3}, accuracy={174: 0.9, 203: 0.9}, config=config)
    assert [event.step for event in again.checkpoints if event.best] == [203]
    assert steps_in(run) == [203]


def test_a_checkpoint_without_a_loss_is_read_and_never_the_best_by_it(run: RunDir) -> None:
    save(run, 29, accuracy={29: 0.9})
    manifest = run.checkpoints / checkpoint_name(29) / MANIFEST
    described = msgspec.json.decode(manifest.read_bytes())
    del described["loss"]
    manifest.write_bytes(msgspec.json.encode(described))
    config = msgspec.structs.replace(CONFIG, best="loss")
    told = save(run, 58, loss={58: 0.5}, accuracy={58: 0.1}, config=config)
    assert steps_in(run) == [58, 29]
    assert told.checkpoints[0].best


def test_what_a_run_that_dies_now_would_resume_from_is_kept(run: RunDir) -> None:
    """The supervisor is suspended: the newest on record; before there is any, the oldest."""
    config = msgspec.structs.replace(CONFIG, keep_checkpoints=1)
    recorded: set[int] = set()
    with Checkpoints(run, make_plan(config), 0, cast(Reporter, Told()), recorded) as checkpoints:
        for step, wanted in ((29, [29]), (58, [58, 29]), (87, [87, 29])):
            checkpoints.save(step, {"a": np.ones(3, np.float32)}, {})
            checkpoints._wait()
            assert steps_in(run) == wanted
        recorded |= {29, 87}
        for step, wanted in ((116, [116, 87]), (145, [145, 87])):
            checkpoints.save(step, {"a": np.ones(3, np.float32)}, {})
            checkpoints._wait()
            assert steps_in(run) == wanted


def test_weights_that_are_not_finite_drive_out_nothing(run: RunDir) -> None:
    config = msgspec.structs.replace(CONFIG, keep_checkpoints=1)
    save(run, 29, config=config)
    told = Told()
    with Checkpoints(run, make_plan(config), 0, cast(Reporter, told), set()) as checkpoints:
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
    with pytest.raises(CheckpointError, match=r"no usable checkpoint: .*step-0000005.*step-00000029"):
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


def test_a_manifest_cannot_point_elsewhere(run: RunDir) -> None:
    save(run, 29)
    manifest = run.checkpoints / checkpoint_name(29) / MANIFEST
    manifest.write_text(manifest.read_text().replace(f'"{MODEL_FILE}"', '"../../run.toml"'))
    with pytest.raises(CheckpointError, match="does not match its directory"):
        read_checkpoint(manifest.parent)


WRITERS = """
import os, pathlib, shutil, signal, sys
from tests.kit.small_checkpoints import newest_usable, save
from tuiapp.trainers.contract.rundir import RunDir

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


def test_what_is_synced_is_whole(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, sizes = os.fsync, dict[str, int]()

    def note(fd: int) -> None:
        sizes[Path(f"/proc/self/fd/{fd}").readlink().name] = os.fstat(fd).st_size
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    save(run, 29)
    (checkpoint,), _ = list_checkpoints(run.checkpoints)
    stored = {file.name: file.stat().st_size for file in checkpoint.path.iterdir()}
    assert len(stored) > 1
    assert {name: sizes[name] for name in stored} == stored
