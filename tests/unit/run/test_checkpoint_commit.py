"""Checkpoints are committed whole or not at all: killed at any moment, or on a disk that is full."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kit.small_checkpoints import CLASSES, CONFIG, newest_usable, save
from tuiapp.trainers.contract.manifest import checkpoint_name, list_checkpoints
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.checkpoints import load

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
