"""The average of the weights is that of a bare loop over them; it is what is evaluated, saved and exported."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.kit.close import assert_close, in_training, rounding
from tests.kit.only_rank import train_alone
from tests.kit.recorder import JAX_BACKENDS, Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.rank.checkpoints import TRAINED
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly

EMA = 0.7
"""Passed on the way: the decay is that of a short run at first."""
EACH_STEP = RunConfig(
    model="mlp", platform="cpu", devices=2, global_batch_size=1436, epochs=25, optimizer="sgd", learning_rate=0.1,
    checkpoint_every=1, eval_every=25,
)  # fmt: skip
"""An epoch is a step: every step is saved."""
AVERAGED = rounding(6)
"""Of weights up to 1. A step rounds twice a product and once a sum, and keeps less than half of what it was off by."""
ALONE = ("torch-ddp", "torch-fsdp", "torch-dp")
"""Take one CPU device of this process."""


def _train(config: RunConfig, shelf: Shelf, save_at: int | None = None) -> Recorder:
    if config.backend in ALONE:
        return train_alone(msgspec.structs.replace(config, devices=1), shelf, save_at=save_at)
    return train(config, save_at=save_at, shelf=shelf)


@pytest.mark.parametrize("backend", mostly_by_hand([*ALONE, *JAX_BACKENDS], "torch-fsdp", "jax-sharding"))
def test_it_is_that_of_a_bare_loop(backend: str) -> None:
    config = msgspec.structs.replace(EACH_STEP, backend=backend)
    bare, ours = Shelf(), Shelf()
    bare_told = _train(config, bare, save_at=0)
    ours_told = _train(msgspec.structs.replace(config, ema=EMA), ours, save_at=0)
    # Training does not read it.
    assert ours_told.losses() == bare_told.losses()
    average = dict(bare.saved[0].model)
    for step in range(1, 26):
        decay = min(EMA, (1 + step) / (10 + step))
        for name, array in bare.saved[step].model.items():
            average[name] = decay * average[name] + (1 - decay) * array
            assert_close(ours.saved[step].model[name], average[name], AVERAGED, name=name)
            np.testing.assert_array_equal(ours.saved[step].state[f"{TRAINED}{name}"], array)
    assert ours_told.evaluations[-1].loss != bare_told.evaluations[-1].loss
    for name, array in ours.exported.items():
        np.testing.assert_array_equal(array, ours.saved[25].model[name])


def test_it_is_what_is_evaluated() -> None:
    shelf = Shelf()
    told = _train(msgspec.structs.replace(EACH_STEP, backend="torch-dp", ema=EMA), shelf)
    data = find_dataset("digits")
    arrays = datasets.load(data)
    model = torch_models.build("mlp", data.input_shape, data.classes)
    x = torch.from_numpy(arrays.x_test).permute(0, 3, 1, 2) / 255
    y = torch.from_numpy(arrays.y_test).long()
    losses = []
    for arrays_of in (shelf.exported, shelf.saved[25].part(TRAINED)):
        model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays_of.items()})
        losses.append(F.cross_entropy(model(x), y).item())
    assert_close(told.evaluations[-1].loss, losses[0], in_training(EACH_STEP, parts=4))
    assert told.evaluations[-1].loss != pytest.approx(losses[1], abs=1e-3)


@pytest.mark.parametrize("backend", ["torch-dp", "jax-sharding"])
def test_of_a_checkpoint_without_one_it_begins_there(backend: str) -> None:
    config = msgspec.structs.replace(EACH_STEP, backend=backend, epochs=2, checkpoint_every=1)
    bare = Shelf()
    _train(config, bare)
    ours = Shelf(bare.saved[1])
    _train(msgspec.structs.replace(config, ema=EMA), ours)
    for name, array in bare.saved[2].model.items():
        wanted = 0.25 * bare.saved[1].model[name] + 0.75 * array
        assert_close(ours.saved[2].model[name], wanted, AVERAGED, name=name)
