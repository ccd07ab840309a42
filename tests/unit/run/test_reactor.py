"""What a run is asked for, and who is told that the GPUs wait for the host."""

from __future__ import annotations

import shutil
import signal
from itertools import chain
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.reported import with_values
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import AnyEvent, CheckpointRequested, StopRequested
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.host_bound import HostBound
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


SLOW = "the host launches kernels too slowly; try"
OF_SCRIPT = "kernels are launched, or data is read, too slowly; try larger batches, torch.compile, CUDA graphs"


def second(number: int, busy: float, pace: float, waited: float) -> list[AnyEvent]:
    steps = with_values(
        h.steps(0, 20 * number + 1, 20 * number + 20, float(number), pace=pace), data_wait=[waited] * 20
    )
    return [steps, msgspec.structs.replace(h.device_sample(0, float(number)), utilization_percent=busy)]


@pytest.mark.parametrize(
    ("keys", "busy", "pace", "waited", "words"),
    [
        ({}, 45, 0.004, 0.0, f"{SLOW} a larger batch, compile = true, cuda_graphs = true"),
        ({"devices": 2}, 45, 0.004, 0.0, f"{SLOW} a larger batch, compile = true"),
        ({"cuda_graphs": True}, 45, 0.004, 0.0, f"{SLOW} a larger batch"),
        ({"backend": "jax-sharding"}, 45, 0.004, 0.0, f"{SLOW} a larger batch"),
        ({"backend": "script"}, 45, 0.004, 0.0, OF_SCRIPT),
        ({}, 45, 0.004, 0.002, "50 % of a step is waiting for data"),
        ({}, 80, 0.004, 0.0, ""),
        ({}, 45, 0.3, 0.0, ""),
    ],
)
def test_it_is_told_once(keys: dict[str, object], busy: float, pace: float, waited: float, words: str) -> None:
    config = msgspec.structs.replace(RunConfig(platform="cuda", devices=1), **keys)
    trained = chain.from_iterable(second(number, busy, pace, waited) for number in range(70))
    state, bound = fold([*h.beginning(1, gpus=True), *trained]), HostBound()
    told = [alert.text for now in range(1, 200) if (alert := bound.poll(state, config, float(now)))]
    assert told == [f"GPUs were idle 55 % of 30 s, at 4.0 ms a step: {words}"] * bool(words)


def test_what_comes_before_the_steps_is_no_idle_time() -> None:
    bound, config = HostBound(), RunConfig(platform="cuda", devices=1)
    slow = [msgspec.structs.replace(h.device_sample(0, float(number)), utilization_percent=0.0) for number in range(70)]
    started = [*h.beginning(1, gpus=True), *slow]
    assert bound.poll(fold(started), config, 70.0) is None
    state = fold([*started, *second(71, 90, 0.004, 0.0)])
    assert bound.poll(state, config, 101.0) is None
