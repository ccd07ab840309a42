"""Training in float16, its loss scaled: about the curve of float32, and steps that overflow change nothing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close
from tests.kit.only_rank import train_alone
from tests.kit.recorder import JAX_BACKENDS, Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.metrics import SCALE, SKIPPED
from tuiapp.trainers.rank.checkpoints import LOSS_SCALE, Saved

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", devices=2, max_steps=37, optimizer="adam", learning_rate=0.003, gradient_clip=1.0,
    checkpoint_every=1, precision="float16",
)  # fmt: skip
ALONE = ("torch-ddp", "torch-fsdp", "torch-dp")
"""Take one CPU device of this process."""
EACH = [*ALONE, *JAX_BACKENDS]


def _train(config: RunConfig, shelf: Shelf, save_at: int | None = None) -> Recorder:
    if config.backend in ALONE:
        return train_alone(msgspec.structs.replace(config, devices=1), shelf, save_at=save_at)
    return train(config, save_at=save_at, shelf=shelf)


def _scale(saved: Saved) -> dict[str, Any]:
    return {name: array.item() for name, array in saved.part(LOSS_SCALE).items()}


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", mostly_by_hand(EACH, "torch-ddp", "jax-sharding"))
@pytest.mark.parametrize("model", mostly_by_hand(["mlp", "convnet"], "mlp"))
def test_it_trains_about_as_float32_does(backend: str, model: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, model=model, max_steps=29)
    shelf = Shelf()
    half = _train(config, shelf)
    whole = _train(msgspec.structs.replace(config, precision="float32"), Shelf())
    (step, values), *_ = half.named
    kept = _scale(shelf.saved[29])
    assert (step, values) == (29, {SCALE: kept["scale"], SKIPPED: kept["skipped"]})
    # A step that is skipped is one of the scale's halvings, the first of which is 65,536.
    assert kept["scale"] == 2.0 ** (16 - kept["skipped"])
    assert kept["skipped"] < 10
    assert whole.named == []
    losses = [np.mean(told.losses()[-5:]) for told in (half, whole)]
    # Steps that are skipped change more than rounding does.
    assert_close(losses[0], losses[1], 0.15, relative=True)
    assert_close(half.evaluations[-1].loss, whole.evaluations[-1].loss, 0.15, relative=True)
    assert np.isfinite(half.losses()).all()
    assert {array.dtype for array in shelf.saved[29].model.values() if array.dtype.kind == "f"} == {
        np.dtype(np.float32)
    }


@pytest.mark.parametrize("optimizer", mostly_by_hand(["adam", "sgd", "adadelta"], "adam"))
@pytest.mark.parametrize("backend", mostly_by_hand(EACH, "torch-fsdp", "jax-pmap"))
def test_a_step_that_overflows_halves_the_scale_and_changes_no_weight(backend: str, optimizer: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, max_steps=3, optimizer=optimizer)
    shelf = Shelf()
    _train(config, shelf, save_at=2)
    before = deepcopy(shelf.saved[2])
    before.state[f"{LOSS_SCALE}scale"] = np.full_like(before.state[f"{LOSS_SCALE}scale"], 2.0**60)
    skipped = _scale(before)["skipped"]
    told = _train(config, after := Shelf(before))
    for name, array in shelf.saved[2].model.items():
        np.testing.assert_array_equal(after.saved[3].model[name], array)
    assert told.named == [(3, {SCALE: 2.0**59, SKIPPED: skipped + 1})]
    # The loss itself is as good as any.
    assert np.isfinite(told.losses()).all()
