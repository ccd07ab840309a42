"""Who is told that the GPUs wait for the host, and what they may try."""

from __future__ import annotations

from itertools import chain

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.reported import with_values
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.run.host_bound import HostBound

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
