"""Splitting the global batch over more ranks changes nothing but where it is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tests.kit.reported import Evaluation
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", optimizer="sgd", learning_rate=0.05, epochs=2, max_steps=30, schedule="cosine"
)
NET: dict[str, Any] = {"model": "net", "learning_rate": 0.005, "momentum": 0.0}
"""Slowly: the digits' pixels come in blocks of equal ones, and where two are largest in a pooling window rounding
decides which of them gets the gradient."""


def _curve(runs_dir: Path, devices: int, **changes: Any) -> tuple[list[float], Evaluation]:
    """The mean loss over the ranks, step by step, and the evaluation at the end."""
    with launched(msgspec.structs.replace(CONFIG, devices=devices, **changes), runs_dir) as run:
        assert run.end(300).status == "completed"
        curves = [run.losses(rank) for rank in range(devices)]
        return [sum(losses) / devices for losses in zip(*curves, strict=True)], run.evaluations()[-1]


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.by_hand)])
@pytest.mark.parametrize("backend", ["torch-ddp", pytest.param("keras-torch", marks=pytest.mark.by_hand)])
def test_any_number_of_ranks_gives_the_same_curve(runs_dir: Path, backend: str, devices: int) -> None:
    one, result_of_one = _curve(runs_dir, 1, backend=backend)
    many, result_of_many = _curve(runs_dir, devices, backend=backend)
    assert len(one) == len(many) == 30
    assert_close(many, one, in_training(CONFIG))
    assert many[-1] < 0.9 * many[0]
    assert (result_of_one.examples, result_of_one.accuracy) == (result_of_many.examples, result_of_many.accuracy)


@pytest.mark.by_hand
def test_synchronized_batch_norm_sees_the_global_batch(runs_dir: Path) -> None:
    one, result_of_one = _curve(runs_dir, 1, **NET)
    two, result_of_two = _curve(runs_dir, 2, **NET, sync_batch_norm=True)
    apart, result_apart = _curve(runs_dir, 2, **NET)
    within = in_training(msgspec.structs.replace(CONFIG, **NET))
    assert_close(two, one, within)
    without = max(abs(a - b) for a, b in zip(one, apart, strict=True))
    print(f"\nwithout synchronized statistics {without:.1e} from the curve of 1 rank")
    assert without > 10 * within
    # The running statistics too.
    assert_close(result_of_two.loss, result_of_one.loss, within)
    assert abs((result_apart.loss or 0) - (result_of_one.loss or 0)) > within
