"""Runs removed: what is gone, what is refused, what an interruption leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.recorded import record, record_checkpoint
from tuiapp.actions.action import ActionError
from tuiapp.actions.delete import remove_run, sweep_removed
from tuiapp.library.find import list_runs
from tuiapp.trainers.contract.rundir import RunDir

RUN_ID = "20261119T101500-torch-ddp-net-3fa1"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = record(tmp_path, RUN_ID, h.completed())
    record_checkpoint(made, 290)
    return made


def test_nothing_is_left(run: RunDir, tmp_path: Path) -> None:
    remove_run(run)
    assert os.listdir(tmp_path) == ["home"] or os.listdir(tmp_path) == []


def test_a_run_that_goes_on_stays(run: RunDir) -> None:
    lock = run.take_lock()
    with pytest.raises(ActionError, match=f"is running. Stop it first: tuiapp stop {RUN_ID}"):
        remove_run(run)
    os.close(lock)
    assert run.journal.exists()
    remove_run(run)
    assert not run.path.exists()


def test_a_directory_that_is_not_named_like_a_run_stays(tmp_path: Path) -> None:
    run = record(tmp_path, "my-project", h.completed())
    with pytest.raises(ActionError, match="does not have a run's name"):
        remove_run(run)
    assert run.config.exists()


def test_a_link_stays_and_so_does_what_it_points_at(run: RunDir, tmp_path: Path) -> None:
    other = RunDir(tmp_path / "20261119T101500-torch-ddp-net-ffff")
    other.path.symlink_to(run.path)
    with pytest.raises(ActionError, match="is a link"):
        remove_run(other)
    assert run.journal.exists()


def test_a_link_within_a_run_is_removed_and_not_followed(run: RunDir, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "precious").touch()
    (run.path / "data").symlink_to(data)
    remove_run(run)
    assert (data / "precious").exists()


def test_what_an_interrupted_removal_left_is_swept(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            remove_run(run)
    assert list_runs(tmp_path) == []
    assert sweep_removed(tmp_path) == 1
    assert [name for name in os.listdir(tmp_path) if name != "home"] == []
    assert sweep_removed(tmp_path) == 0
    assert sweep_removed(tmp_path / "nowhere") == 0
