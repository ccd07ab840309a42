"""What a run is asked for: here by signals, and by a directory that is removed, moved, or brought back."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tuiapp.trainers.contract.events import CheckpointRequested, StopRequested
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.reactor import MOVED_S, Requests


class Clock:
    """Stands still unless a test moves it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    directory = RunDir(tmp_path / "runs" / "20261120T101500-torch-ddp-mlp-3fa1")
    directory.commands.mkdir(parents=True)
    return directory


def asked(requests: Requests) -> list[str]:
    found = requests.take(stopping=False)
    assert all(isinstance(one, StopRequested) and one.now for one in found)
    return [one.by for one in found]


def test_a_run_whose_directory_is_deleted_ends_at_once(run: RunDir) -> None:
    requests = Requests(run, Clock())
    assert asked(requests) == []
    shutil.rmtree(run.path)
    assert asked(requests) == ["removal"]
    assert asked(requests) == []


def test_a_directory_that_is_moved_may_come_back(run: RunDir, tmp_path: Path) -> None:
    clock = Clock()
    requests = Requests(run, clock)
    (tmp_path / "runs").rename(tmp_path / "larger disk")
    assert asked(requests) == []
    clock.now += MOVED_S - 1
    assert asked(requests) == []
    (tmp_path / "runs").symlink_to(tmp_path / "larger disk")
    clock.now += 2
    assert asked(requests) == []
    (tmp_path / "runs").unlink()
    assert asked(requests) == []
    clock.now += MOVED_S
    assert asked(requests) == ["removal"]


def test_signals(run: RunDir) -> None:
    requests = Requests(run, Clock())
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGQUIT):
        requests.note_signal(number)
    saved, *stops = requests.take(stopping=False)
    assert isinstance(saved, CheckpointRequested)
    assert saved.by == "SIGUSR1"
    told = [(stop.by, stop.now, stop.save) for stop in stops if isinstance(stop, StopRequested)]
    assert told == [("SIGTERM", False, True), ("SIGTERM", True, False), ("SIGQUIT", True, False)]
    requests.note_signal(signal.SIGTERM)
    (again,) = requests.take(stopping=True)
    assert isinstance(again, StopRequested)
    assert again.now
