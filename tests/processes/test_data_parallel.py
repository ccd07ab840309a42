"""Splitting the global batch over more ranks changes nothing but where it is computed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.processes.harness import launched
from trainers.contract.config import RunConfig
from trainers.contract.events import Evaluation, Steps

CONFIG = RunConfig(
    model="mlp", platform="cpu", optimizer="sgd", learning_rate=0.05, epochs=2, max_steps=30, schedule="cosine"
)


def _curve(runs_dir: Path, devices: int) -> tuple[list[float], Evaluation]:
    """The mean loss over the ranks, step by step, and the evaluation at the end."""
    with launched(msgspec.structs.replace(CONFIG, devices=devices), runs_dir) as run:
        assert run.end().status == "completed"
        curves = [
            [loss or 0.0 for event in run.of(Steps) if event.rank == rank for loss in event.losses]
            for rank in range(devices)
        ]
        return [sum(losses) / devices for losses in zip(*curves, strict=True)], run.of(Evaluation)[-1]


def test_one_and_two_ranks_give_the_same_curve(runs_dir: Path) -> None:
    one, result_of_one = _curve(runs_dir, 1)
    two, result_of_two = _curve(runs_dir, 2)
    assert len(one) == len(two) == 30
    largest = max(abs(a - b) for a, b in zip(one, two, strict=True))
    print(f"\nlargest difference between the curves of 1 and 2 ranks over 30 steps: {largest:.1e}")
    assert largest < 1e-5
    assert two[-1] < 0.9 * two[0]
    assert (result_of_one.examples, result_of_one.accuracy) == (result_of_two.examples, result_of_two.accuracy)
