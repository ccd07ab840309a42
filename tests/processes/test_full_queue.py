"""A queue whose disk is full, and a sweep that is killed while it is queued."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.disks import Disk, small_disk
from tests.unit.experiments.conftest import Queue, script, wait_until
from tuiapp.library.queue_words import describe_place
from tuiapp.trainers.config.run_config import to_toml_values
from tuiapp.trainers.contract.rundir import find_run_dirs
from tuiapp.trainers.experiments import queue
from tuiapp.trainers.experiments.queue import enqueue, start_keeper
from tuiapp.trainers.experiments.study import Search, Study, StudyDir, StudyError
from tuiapp.trainers.experiments.sweep import begin_search, resume_grid
from tuiapp.trainers.launch import directory
from tuiapp.trainers.state.summary import summarise
from tuiapp.view.study import heading, read_study_state

pytestmark = pytest.mark.nightly


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "small") as found:
        yield found


@pytest.fixture
def full(disk: Disk) -> Iterator[Queue]:
    found = Queue(disk.path / "runs")
    yield found
    found.end()


def test_what_waits_waits_on_and_starts_when_there_is_room(
    disk: Disk, full: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(queue, "start_keeper", lambda runs_dir: "")
        runs = [enqueue(script(tmp_path, "print(1)"), full.runs_dir) for _ in range(4)]
    disk.fill(0)
    # Its log and its notes need room, too.
    start_keeper(full.runs_dir)
    tried = runs[0].supervisor_log
    wait_until(lambda: tried.exists() and not full.processes("launch.queued"))
    assert full.waiting == [run.run_id for run in runs]
    assert {summarise(run).status for run in runs} == {"queued"}
    assert describe_place(runs[1]).endswith(f"there is no space left in {full.runs_dir}")
    disk.make_room()
    wait_until(full.is_over)
    assert {summarise(run).status for run in runs} == {"completed"}


COUNT = 40


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Queue]:
    made = Queue(tmp_path / "runs")
    made.runs_dir.mkdir()
    yield made
    made.end()


def _hidden(runs_dir: Path) -> int:
    """How many runs are being made."""
    # A directory may go while it is listed.
    with contextlib.suppress(FileNotFoundError):
        return len([*runs_dir.glob(".new-*/2*")])
    return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("built", [1, 12, COUNT])
def test_a_sweep_that_is_killed(
    waiting: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, built: int
) -> None:
    config = script(tmp_path, "print(1)")
    words = [config.script, "--grid", f"x=1..{COUNT}", "--hold", "--runs-dir", str(waiting.runs_dir), "--name", "mine"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tuiapp", "sweep", *words, "--", "{x}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: _hidden(waiting.runs_dir) >= built or process.poll() is not None, 60)
    process.send_signal(number)
    process.wait(60)
    runs = find_run_dirs(waiting.runs_dir)
    assert {summarise(run).status for run in runs} <= {"queued"}
    place = StudyDir(waiting.runs_dir, "mine")
    if place.exists():
        assert place.read().axes == {"x": f"1..{COUNT}"}
        resume_grid(place, held=True)
        assert len(place.runs()) == COUNT
    else:
        assert runs == []
        with pytest.raises(StudyError, match="There is no study"):
            place.read()
    # What it left goes with the next one that is made, once it is old enough to have no maker.
    monkeypatch.setattr(directory, "MAKING_S", 0.0)
    queue.enqueue(config, waiting.runs_dir, held=True)
    assert not [*waiting.runs_dir.glob(".new-*")]
    assert not any(name.startswith(".") for run in find_run_dirs(waiting.runs_dir) for name in os.listdir(run.path))


TRIAL = """
import sys, time, tuiapp
for step in range(1, 21):
    tuiapp.log({"badness": (float(sys.argv[1]) - 0.3) ** 2}, step=step)
    time.sleep(0.01)
"""


def test_a_search_goes_on_when_there_is_room(disk: Disk, full: Queue, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    base = script(tmp_path, TRIAL)
    study = Study(
        name="lr",
        axes={"rate": "0.0..1.0"},
        config=to_toml_values(base) | {"arguments": "{rate}", "values": "rate=0.5"},
        search=Search(trials=6, parallel=2, sampler="random", pruner="none"),
        metric="badness",
    )
    place = begin_search(study, full.runs_dir)
    wait_until(lambda: any(run.journal.exists() and b"badness" in run.journal.read_bytes() for run in full.runs))
    process = full.only("search")
    # A page of it lies on the disk: what is said has room in that.
    with place.log.open("a") as log:
        log.write("here\n")
    disk.fill(0)
    wait_until(lambda: "the disk is full" in place.log.read_text())
    assert heading(read_study_state(place)).endswith(f"waits: there is no space left in {full.runs_dir}")
    assert full.only("search") == process, "it waits, and is not begun again and again"
    disk.make_room()
    wait_until(lambda: place.how_it_ended() is not None)
    ended = place.how_it_ended()
    assert ended is not None
    assert (ended.reason, ended.failed) == ("6 trials are made", False)
    runs = place.runs()
    assert len(runs) == 6
    assert {summarise(run).status for run in runs} == {"completed"}
    wait_until(lambda: not full.processes("search"))
    assert place.read().environment == {}, "it is kept no longer than needed"
