"""Splitting the global batch over more ranks changes nothing but where it is computed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.processes.harness import launched
from trainers.contract.config import RunConfig
from trainers.contract.events import Evaluation, Steps

CONFIG = RunConfig(
    model="mlp", platform="cpu", optimizer="sgd", learning_rate=0.05, epochs=2, max_steps=30, schedule="cosine"
)


def _curve(backend: str, runs_dir: Path, devices: int) -> tuple[list[float], Evaluation]:
    """The mean loss over the ranks, step by step, and the evaluation at the end."""
    with launched(msgspec.structs.replace(CONFIG, backend=backend, devices=devices), runs_dir) as run:
        assert run.end().status == "completed"
        curves = [
            [loss or 0.0 for event in run.of(Steps) if event.rank == rank for loss in event.losses]
            for rank in range(devices)
        ]
        return [sum(losses) / devices for losses in zip(*curves, strict=True)], run.of(Evaluation)[-1]


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["torch-ddp", "keras-torch"])
def test_any_number_of_ranks_gives_the_same_curve(runs_dir: Path, backend: str, devices: int) -> None:
    one, result_of_one = _curve(backend, runs_dir, 1)
    many, result_of_many = _curve(backend, runs_dir, devices)
    assert len(one) == len(many) == 30
    largest = max(abs(a - b) for a, b in zip(one, many, strict=True))
    print(f"\n{backend}: largest difference between the curves of 1 and {devices} ranks over 30 steps: {largest:.1e}")
    assert largest < 1e-5
    assert many[-1] < 0.9 * many[0]
    assert (result_of_one.examples, result_of_one.accuracy) == (result_of_many.examples, result_of_many.accuracy)
