"""A batch taken in parts makes the steps of the whole batch, up to rounding."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tests.kit.recorder import JAX_BACKENDS, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", devices=2, max_steps=20, optimizer="sgd", weight_decay=1e-3, gradient_clip=1.0,
    checkpoint_every=0,
)  # fmt: skip
"""Without BatchNorm, which normalizes each part, and Dropout, which draws for each."""


def _means(losses: list[list[float]]) -> list[float]:
    return [sum(of_step) / len(of_step) for of_step in losses]


@pytest.mark.parametrize("backend", mostly_by_hand([*JAX_BACKENDS, "torch-dp"], "jax-sharding"))
def test_four_parts_give_the_curve_of_one(backend: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, devices=1 if backend == "torch-dp" else 2)
    whole, parts = train(config), train(msgspec.structs.replace(config, accumulate=4))
    # Each device's loss too: a part has as many examples of every device as the others.
    for one, other in zip(whole.losses(), parts.losses(), strict=True):
        assert_close(other, one, in_training(config, parts=2))
    assert_close(parts.evaluations[-1].loss, whole.evaluations[-1].loss, in_training(config))


@pytest.mark.parametrize("backend", mostly_by_hand(["torch-ddp", "torch-fsdp", "keras-torch"], "torch-ddp"))
def test_ranks_that_take_parts_give_the_curve_of_whole_batches(backend: str, tmp_path: Path) -> None:
    curves = []
    for parts in (1, 4):
        config = msgspec.structs.replace(CONFIG, backend=backend, accumulate=parts)
        with launched(config, tmp_path) as run:
            assert run.end(170).status == "completed"
            curves.append([run.losses(rank) for rank in range(2)])
    whole, in_parts = curves
    for one, other in zip(whole, in_parts, strict=True):
        assert_close(other, one, in_training(CONFIG, parts=2))


@pytest.mark.by_hand
def test_dropout_draws_for_each_part() -> None:
    config = msgspec.structs.replace(CONFIG, backend="jax-pmap", model="convnet", max_steps=1, global_batch_size=8)
    whole, parts = (train(msgspec.structs.replace(config, accumulate=parts)) for parts in (1, 2))
    assert whole.losses() != parts.losses()
