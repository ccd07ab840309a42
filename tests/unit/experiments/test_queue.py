"""What waits in the queue: added, moved, held, cancelled, and shown."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.experiments.conftest import Queue, script
from tuiapp.actions import delete
from tuiapp.library.queue_words import with_places
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.lock import Liveness, take
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import UNREAD, Entry, note_started, read_waiting
from tuiapp.trainers.experiments.placing import Facts, decide
from tuiapp.trainers.experiments.queue import (
    Outlook,
    QueueError,
    QueueFiles,
    cancel,
    change,
    enqueue,
    move,
    outlook,
)
from tuiapp.trainers.launch import LaunchError
from tuiapp.trainers.state.summary import summarise

CONFIG = RunConfig(model="mlp", platform="cpu", devices=2)
GPUS = tuple(
    Gpu(index=n, uuid=f"GPU-{n}", name="Fake", memory_total_bytes=80 << 30, memory_used_bytes=79 << 30)
    for n in range(2)
)


def add_held(waiting: Queue, machine: Machine, count: int = 1, priority: int = 0) -> list[RunDir]:
    """Nothing that is held needs a keeper."""
    runs = [enqueue(CONFIG, waiting.runs_dir, machine=machine, held=True, priority=priority) for _ in range(count)]
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


def test_what_a_full_disk_does_not_note_does_not_happen(
    waiting: Queue, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = add_held(waiting, machine)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tuiapp.trainers.contract.journal.os.write", full)
        with pytest.raises(QueueError, match="No space left on device"):
            cancel(waiting.runs_dir, run)
    assert waiting.waiting == [run.run_id]
    cancel(waiting.runs_dir, run)
    assert summarise(run).status == "stopped"


def test_it_is_checked_as_a_launch_is_but_for_what_is_busy(
    waiting: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    busy = Machine(cpu_cores=2, memory_total_bytes=8 << 30, gpus=GPUS)
    config = msgspec.structs.replace(script(tmp_path, ""), platform="cuda", devices=1)
    run = enqueue(config, waiting.runs_dir, machine=busy, held=True)
    kept = read_waiting(run.waits)
    assert kept is not None
    assert (kept.platform, kept.devices, kept.device_ids) == ("cuda", 1, ()), "any GPU, not the one of today"
    shown = summarise(run).config
    assert shown is not None
    assert shown.device_ids == (), "nor is that one shown"
    refused: list[dict[str, Any]] = [{"devices": 3}, {"device_ids": ("7",)}]
    cancel(waiting.runs_dir, enqueue(config, waiting.runs_dir, machine=busy, held=True))
    cancelled = max(waiting.runs, key=lambda one: one.path.stat().st_mtime_ns)
    shown = summarise(cancelled).config
    assert shown is not None
    assert (summarise(cancelled).status, shown.device_ids) == ("stopped", ()), "it never had any"
    refused += [{"launcher": "ssh"}, {"launcher": "slurm"}]
    for wrong in refused:
        with pytest.raises(ConfigError) as error:
            enqueue(msgspec.structs.replace(config, **wrong), waiting.runs_dir, machine=busy, held=True)
        assert {*wrong} & {problem.key for problem in error.value.problems}
    assert waiting.waiting == [run.run_id], "nothing is left of what is refused"


def test_a_list_says_its_place_and_why_it_waits(waiting: Queue, machine: Machine) -> None:
    first, second = add_held(waiting, machine, 2)
    change(waiting.runs_dir, first, held=False)
    waiting.kill("queue_keeper")
    waits = Outlook(reason="waits for 2 GPUs: 1 free of 4")
    QueueFiles(waiting.runs_dir).outlook.write_bytes(msgspec.json.encode({first.run_id: waits}))
    assert outlook(waiting.runs_dir)[first.run_id].reason == "waits for 2 GPUs: 1 free of 4"
    infos = with_places([summarise(run) for run in (second, first)])
    assert [(info.place, info.reason) for info in infos] == [(2, "held"), (1, "waits for 2 GPUs: 1 free of 4")]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": Path.touch,
    "torn": lambda file: file.write_bytes(b"{"),
    "deep": lambda file: file.write_bytes(b"[" * 10_000),
    "other": lambda file: file.write_bytes(b'{"order": "x"}'),
    "link": lambda file: file.symlink_to("nowhere"),
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
}


@pytest.mark.parametrize("ends", ["cancel", "rm"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_place_that_cannot_be_read_is_the_last_and_can_be_ended(
    waiting: Queue, machine: Machine, damage: Callable[[Path], object], ends: str
) -> None:
    run, other = add_held(waiting, machine, 2)
    run.waits.unlink()
    damage(run.waits)
    assert waiting.waiting == [other.run_id, run.run_id]
    (info,) = with_places([summarise(run)])
    assert (info.status, info.reason) == ("queued", "its waits.json cannot be read; it can only be cancelled")
    with pytest.raises(QueueError, match="can only be cancelled"):
        change(waiting.runs_dir, run, held=False)
    move(waiting.runs_dir, other, 0)
    if ends == "cancel":
        cancel(waiting.runs_dir, run)
        assert (summarise(run).status, run.liveness()) == ("stopped", Liveness.NOBODY)
    else:
        assert delete.do([run]).done == [run]
    assert waiting.waiting == [other.run_id]


def test_a_place_that_cannot_be_read_for_a_moment_is_not_damaged(waiting: Queue, machine: Machine) -> None:
    (run,) = add_held(waiting, machine)
    free, limits = os.dup(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        found = read_waiting(run.waits)
        with pytest.raises(OSError, match="cannot be read now"):
            note_started(run)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found is UNREAD
    assert not found.held, "its keeper stays for it"
    reasons = decide([Entry(run, found)], Facts(time.time(), (), (), (), 1))[1]
    assert reasons == {run.run_id: "its waits.json cannot be read now"}
    assert waiting.waiting == [run.run_id]


def test_nothing_is_half_moved_however_often_runs_are_moved(waiting: Queue, machine: Machine) -> None:
    first, second, third = add_held(waiting, machine, 3)
    for number in range(120):
        move(waiting.runs_dir, (second, third)[number % 2], 1)
        wanted = (second, third) if number % 2 == 0 else (third, second)
        assert waiting.waiting == [first.run_id, *(run.run_id for run in wanted)]


TROUBLE: dict[str, tuple[Callable[[Path], object], str]] = {
    ".": (Path.touch, "cannot be used for the queue: "),
    "": (lambda queue: queue.symlink_to("nowhere"), "cannot be used for the queue: "),
    "lock": (Path.mkdir, "nothing starts 2"),
    "keeper.log": (os.mkfifo, "nothing starts 2"),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_a_queue_that_cannot_start_says_so(waiting: Queue, machine: Machine, name: str) -> None:
    damage, says = TROUBLE[name]
    waiting.runs_dir.mkdir()
    damaged = waiting.runs_dir / ".queue" / name
    damaged.parent.mkdir(exist_ok=True)
    damage(damaged)
    with pytest.raises(QueueError, match=says):
        enqueue(CONFIG, waiting.runs_dir, machine=machine)


def test_who_has_the_queues_lock_and_starts_nothing_is_named(waiting: Queue, machine: Machine) -> None:
    add_held(waiting, machine)
    lock = take(QueueFiles(waiting.runs_dir).lock)
    try:
        with pytest.raises(QueueError, match=r"another program has locked .*lock"):
            enqueue(CONFIG, waiting.runs_dir, machine=machine)
        (info,) = with_places([summarise(run) for run in waiting.runs if run.run_id == waiting.waiting[1]])
        assert "another program has locked" in info.reason
    finally:
        os.close(lock)


def test_too_large_an_environment_is_refused_and_nothing_is_queued(
    waiting: Queue, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuiapp.trainers.contract.sidecars.MAX_WAITING_BYTES", 4096)
    monkeypatch.setenv("LARGE", "x" * 5000)
    with pytest.raises(LaunchError, match="an environment of"):
        add_held(waiting, machine)
    assert waiting.waiting == [] == waiting.runs


def test_a_clock_set_back_changes_nothing(waiting: Queue, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = add_held(waiting, machine)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    (second,) = add_held(waiting, machine)
    assert waiting.waiting == [first.run_id, second.run_id]


def test_the_files_of_the_queue_are_no_runs(waiting: Queue, machine: Machine, tmp_path: Path) -> None:
    from tuiapp.library.find import list_runs

    runs = add_held(waiting, machine, 2)
    assert {run.run_id for run in list_runs(waiting.runs_dir)} == {run.run_id for run in runs}
