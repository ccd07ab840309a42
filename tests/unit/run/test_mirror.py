"""The mirror of a run, on directories that a supervisor left, or still writes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import record
from tuiapp.trainers.config.mirror import mirror_fault
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import mirror

RUN_ID = "20261120T101500-torch-ddp-net-3fa1"


def test_a_run_that_is_over(tmp_path: Path) -> None:
    run = record(tmp_path / "runs", RUN_ID, h.completed())
    mirror.mirror(run, tmp_path / "board", {"learning_rate": 0.5})
    assert _steps(tmp_path / "board" / RUN_ID) == [*range(1, 291)]
    assert _steps(tmp_path / "board" / RUN_ID / "rank1") == [*range(1, 291)]
    mirror.mirror(run, tmp_path / "board", {})
    assert len(list((tmp_path / "board" / RUN_ID).glob("*tfevents*"))) == 1
    mirror.mirror(run, tmp_path / "elsewhere", {})
    assert _steps(tmp_path / "elsewhere" / RUN_ID) == [*range(1, 291)]


def test_a_resumed_run_continues(tmp_path: Path) -> None:
    run = record(tmp_path / "runs", RUN_ID, h.running(last_step=80))
    mirror.mirror(run, tmp_path / "board", {})
    assert _steps(tmp_path / "board" / RUN_ID)[-1] == 80
    _append(run, interrupted.resumed(step=72))
    mirror.mirror(run, tmp_path / "board", {})
    steps = _steps(tmp_path / "board" / RUN_ID)
    assert steps == [*range(1, len(steps) + 1)]
    assert len(list((tmp_path / "board" / RUN_ID).glob("*tfevents*"))) == 2


def test_a_live_run_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "POLL_S", 0.01)
    events = h.completed()
    half = len(events) // 2
    run = record(tmp_path / "runs", RUN_ID, events[:half])
    lock = run.take_lock()
    thread = threading.Thread(target=mirror.mirror, args=(run, tmp_path / "board", {}))
    thread.start()
    board = tmp_path / "board" / RUN_ID
    deadline = time.monotonic() + 30
    while not (board.exists() and _steps(board)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    seen = _steps(board)[-1]
    _append(run, events[half:])
    os.close(lock)
    thread.join(30)
    assert not thread.is_alive()
    assert seen < 290
    assert _steps(board) == [*range(1, 291)]


def test_how_far_it_has_come_is_noted_once_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError("full")

    run = record(tmp_path / "runs", RUN_ID, h.completed())
    monkeypatch.setattr("tuiapp.trainers.state.tensorboard.EventFiles.flush", fail)
    with pytest.raises(OSError, match="full"):
        mirror.mirror(run, tmp_path / "board", {})
    assert run.mirror.read_bytes() == b""


def test_what_cannot_be_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert mirror_fault("off") == ""
    assert mirror_fault(f"tensorboard:{tmp_path}/new/deeper") == ""
    assert not (tmp_path / "new").exists()
    assert mirror_fault(f"tensorboard:{tmp_path}/file/x") == f"{tmp_path}/file is not a directory."
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written to" in mirror_fault(f"tensorboard:{tmp_path}/x")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "not installed: pip install tensorboard" in mirror_fault(f"tensorboard:{tmp_path}/x")


def _append(run: RunDir, events: list[AnyEvent]) -> None:
    writer = JournalWriter(run.journal)
    writer.append(events)
    writer.close()


def _steps(directory: Path) -> list[int]:
    found = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    found.Reload()
    return [each.step for each in found.Scalars("loss")] if "loss" in found.Tags()["scalars"] else []
