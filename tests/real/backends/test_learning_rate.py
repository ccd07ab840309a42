"""A scaled rate makes the steps of the rate that it is, and a batch in parts those of the whole batch."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tests.kit.recorder import JAX_BACKENDS, ONE_PROCESS, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.metrics import LEARNING_RATE

pytestmark = pytest.mark.nightly


SCALED = RunConfig(
    model="mlp", platform="cpu", devices=2, global_batch_size=64, max_steps=8, optimizer="sgd", schedule="cosine",
    warmup_steps=3, learning_rate=0.1, checkpoint_every=0,
)  # fmt: skip
GIVEN = replace(SCALED, learning_rate=0.025, learning_rate_for=16)
ELSEWHERE = [name for name, backend in BACKENDS.items() if backend.builtin and name not in ONE_PROCESS]


@pytest.mark.parametrize("backend", mostly_by_hand(ONE_PROCESS, "jax-sharding"))
def test_one_process_makes_the_steps_of_the_scaled_rate(backend: str) -> None:
    wanted, told = (train(replace(config, backend=backend)) for config in (SCALED, GIVEN))
    assert max(step.learning_rate for step in told.steps) == pytest.approx(0.1)
    assert [step.learning_rate for step in told.steps] == [step.learning_rate for step in wanted.steps]
    assert told.losses() == wanted.losses()


@pytest.mark.parametrize("backend", mostly_by_hand(ELSEWHERE, "torch-ddp"))
def test_ranks_make_the_steps_of_the_scaled_rate(backend: str, tmp_path: Path) -> None:
    devices = 1 if backend == "torch-dp" else 2
    curves = []
    for config in (SCALED, GIVEN):
        with launched(replace(config, backend=backend, devices=devices), tmp_path) as run:
            assert run.end(170).status == "completed"
            # What the journal says is what was used.
            rates = [rate for report in run.reports(0) for rate in report.values[LEARNING_RATE]]
            curves.append((rates, run.losses(0)))
    assert curves[0] == curves[1]


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
