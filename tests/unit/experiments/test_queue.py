"""What waits in the queue: added, moved, held, cancelled, and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.experiments.conftest import Queue, script
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.waiting import read_waiting
from tuiapp.trainers.experiments.queue import (
    Outlook,
    QueueError,
    add,
    cancel,
    change,
    move,
    outlook,
    placed,
    write_outlook,
)
from tuiapp.trainers.state.summary import summarise

CONFIG = RunConfig(model="mlp", platform="cpu", devices=2)
GPUS = tuple(
    Gpu(index=n, uuid=f"GPU-{n}", name="Fake", memory_total_bytes=80 << 30, memory_used_bytes=79 << 30)
    for n in range(2)
)


def add_held(waiting: Queue, machine: Machine, count: int = 1, priority: int = 0) -> list[RunDir]:
    """Nothing that is held needs a keeper."""
    runs = [add(CONFIG, waiting.runs_dir, machine=machine, held=True, priority=priority) for _ in range(count)]
    assert not waiting.processes()
    return runs


def test_a_queued_run_is_a_run_that_is_live_and_queued(waiting: Queue, machine: Machine) -> None:
    (run,) = add_held(waiting, machine)
    info = summarise(run)
    assert (run.liveness(), info.status, info.is_live) == (Liveness.WAITING, "queued", True)
    assert info.waiting == read_waiting(run.waits)
    assert run.waits.stat().st_mode & 0o777 == 0o600, "it has the session's environment"


def test_the_order_and_the_moves(waiting: Queue, machine: Machine) -> None:
    a, b, c, d = (run.run_id for run in add_held(waiting, machine, 4))
    runs = {run.run_id: run for run in waiting.runs}
    assert waiting.waiting == [a, b, c, d]
    move(waiting.runs_dir, runs[d], 0)
    assert waiting.waiting == [d, a, b, c]
    move(waiting.runs_dir, runs[d], 2)
    assert waiting.waiting == [a, b, d, c]
    move(waiting.runs_dir, runs[a], 99)
    assert waiting.waiting == [b, d, c, a]
    (urgent,) = add_held(waiting, machine, priority=5)
    assert waiting.waiting == [urgent.run_id, b, d, c, a]
    # Beside another it has that one's priority, and stays there.
    move(waiting.runs_dir, urgent, 2)
    assert waiting.waiting == [b, d, urgent.run_id, c, a]
    move(waiting.runs_dir, runs[a], 0)
    assert waiting.waiting == [a, b, d, urgent.run_id, c]


def test_a_cancelled_run_has_ended_and_is_in_the_queue_no_more(waiting: Queue, machine: Machine) -> None:
    first, second = add_held(waiting, machine, 2)
    cancel(waiting.runs_dir, first)
    info = summarise(first)
    assert (info.status, info.reason, info.is_live) == ("stopped", "cancelled in the queue", False)
    assert waiting.waiting == [second.run_id]
    for act in (cancel, lambda where, run: change(where, run, held=True), lambda where, run: move(where, run, 0)):
        with pytest.raises(QueueError, match="does not wait in the queue"):
            act(waiting.runs_dir, first)


def test_it_is_checked_as_a_launch_is_but_for_what_is_busy(waiting: Queue, tmp_path: Path) -> None:
    busy = Machine(cpu_cores=2, memory_total_bytes=8 << 30, gpus=GPUS)
    config = msgspec.structs.replace(script(tmp_path, ""), platform="cuda", devices=1)
    run = add(config, waiting.runs_dir, machine=busy, held=True)
    kept = read_waiting(run.waits)
    assert kept is not None
    assert (kept.platform, kept.devices, kept.device_ids) == ("cuda", 1, ()), "any GPU, not the one of today"
    shown = summarise(run).config
    assert shown is not None
    assert shown.device_ids == (), "nor is that one shown"
    refused: list[dict[str, Any]] = [{"devices": 3}, {"device_ids": ("7",)}, {"launcher": "ssh"}]
    for wrong in refused:
        with pytest.raises(ConfigError) as error:
            add(msgspec.structs.replace(config, **wrong), waiting.runs_dir, machine=busy, held=True)
        assert {*wrong} & {problem.key for problem in error.value.problems}
    assert waiting.waiting == [run.run_id], "nothing is left of what is refused"


def test_a_list_says_its_place_and_why_it_waits(waiting: Queue, machine: Machine) -> None:
    first, second = add_held(waiting, machine, 2)
    change(waiting.runs_dir, first, held=False)
    waiting.kill("keeper")
    write_outlook(waiting.runs_dir, {first.run_id: Outlook(reason="waits for 2 GPUs: 1 free of 4")})
    assert outlook(waiting.runs_dir)[first.run_id].reason == "waits for 2 GPUs: 1 free of 4"
    infos = placed([summarise(run) for run in (second, first)])
    assert [(info.place, info.reason) for info in infos] == [
        (2, "held"),
        (1, "waits for 2 GPUs: 1 free of 4"),
    ]


@pytest.mark.parametrize("damage", [b"", b"{", b"[" * 10_000, b'{"order": "x"}'])
def test_a_damaged_place_is_no_place(waiting: Queue, machine: Machine, damage: bytes) -> None:
    (run,) = add_held(waiting, machine)
    run.waits.write_bytes(damage)
    assert waiting.waiting == []
    assert summarise(run).waiting is None


def test_the_files_of_the_queue_are_no_runs(waiting: Queue, machine: Machine, tmp_path: Path) -> None:
    from tuiapp.library.find import list_runs

    runs = add_held(waiting, machine, 2)
    assert {run.run_id for run in list_runs(waiting.runs_dir)} == {run.run_id for run in runs}
