"""Holding, moving and cancelling what waits: one that has started meanwhile does not keep the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.recorded import record
from tuiapp.actions import queue as actions
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import find_waiting
from tuiapp.trainers.experiments import queue


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    monkeypatch.setattr(queue, "start_keeper", lambda runs_dir: "")
    config = RunConfig(model="mlp", platform="cpu", devices=1)
    return [queue.enqueue(config, tmp_path) for _ in range(2)]


@pytest.fixture
def ended(tmp_path: Path) -> RunDir:
    return record(tmp_path, "20261120T101500-torch-ddp-net-3fa1", h.completed())


def test_those_that_wait_are_changed_and_the_other_is_named(waits: list[RunDir], ended: RunDir) -> None:
    first, second = waits
    runs_dir = first.path.parent
    for outcome in (
        actions.hold([first, ended, second], held=True),
        actions.move([(first, 1), (ended, 0), (second, 0)]),
    ):
        assert outcome.done == waits
        assert outcome.of("error") == [f"{ended.run_id} does not wait in the queue."]
    found = find_waiting(runs_dir)
    assert [one.run.run_id for one in found] == [second.run_id, first.run_id]
    assert all(one.waiting.held for one in found)
    assert actions.hold([first], held=False).done == [first]
    assert [one.waiting.held for one in find_waiting(runs_dir)] == [True, False]
    assert actions.cancel([ended, *waits]).done == waits
    assert find_waiting(runs_dir) == []
