"""A full disk while runs wait, or a search makes them: all wait, say why, and go on when there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.disks import Disk, small_disk
from tests.unit.experiments.conftest import Queue, script, wait_until
from tuiapp.library.queue_words import describe_place
from tuiapp.trainers.experiments import queue
from tuiapp.trainers.experiments.queue import enqueue, start_keeper
from tuiapp.trainers.state.summary import summarise

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
