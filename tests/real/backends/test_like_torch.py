"""From the same weights, JAX's step and PyTorch's give the same losses."""

from __future__ import annotations

from functools import partial

import jax
import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.kit.close import assert_close, in_training
from tests.kit.recorder import Recorder
from tests.kit.variants import mostly_by_hand
from tests.kit.weights import from_torch
from tuiapp.trainers.backends.jax_sharding import make_step
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax.mesh import DeviceMesh
from tuiapp.trainers.frameworks.jax.state import create
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.frameworks.torch.ranks import build_optimizer
from tuiapp.trainers.rank.schedules import learning_rate
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly

STEPS = 20


@pytest.mark.parametrize(
    ("model", "flattened"), [("mlp", (28, 28, 1)), pytest.param("net", (5, 5, 64), marks=pytest.mark.by_hand)]
)
@pytest.mark.parametrize("optimizer", mostly_by_hand(["sgd", "adam"], "adam"))
def test_twenty_steps(model: str, flattened: tuple[int, int, int], optimizer: str) -> None:
    config = RunConfig(model=model, optimizer=optimizer, learning_rate=0.002, weight_decay=1e-3, schedule="linear")
    torch.manual_seed(0)
    module = torch_models.build(model, (28, 28, 1), 10)
    state = create(make_plan(config))
    like = {"params": state.params, **({"batch_stats": state.batch_stats} if state.batch_stats else {})}
    start = from_torch(module, like, flattened)
    state = state.replace(params=start["params"], batch_stats=start.get("batch_stats", {}))
    torch_optimizer = build_optimizer(config, module)
    one = msgspec.structs.replace(config, devices=1)
    mesh = DeviceMesh(make_plan(one), Recorder())  # type: ignore[arg-type]
    step_fn = jax.jit(partial(make_step, config=one, mesh=mesh))
    arrays = datasets.load(find_dataset("digits"))
    plan = make_plan(config)
    curves: tuple[list[float], list[float]] = [], []
    for step, rows in enumerate(datasets.epoch_order(len(arrays.x_train), 48, 0, 1)[:STEPS], start=1):
        x, y, rate = (
            arrays.x_train[rows].astype(np.float32) / 255,
            arrays.y_train[rows],
            learning_rate(plan, step),
        )
        state, losses, _ = step_fn(state, x, y, rate)
        curves[0].append(float(losses[0]))
        loss = F.cross_entropy(module(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())), torch.from_numpy(y))
        torch_optimizer.param_groups[0]["lr"] = float(rate)
        torch_optimizer.zero_grad()
        loss.backward()
        torch_optimizer.step()
        curves[1].append(loss.item())
    assert_close(*curves, in_training(config, steps=STEPS))
    assert curves[0][-1] < curves[0][0]
