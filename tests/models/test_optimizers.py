"""Optax's updates are PyTorch's, number for number."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from trainers.contract.catalog import OPTIMIZER_SLOTS
from trainers.contract.config import RunConfig
from trainers.models.flax_state import build_optimizer
from trainers.torch_ranks import build_optimizer as build_torch


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", OPTIMIZER_SLOTS)
def test_ten_updates(name: str, weight_decay: float) -> None:
    config = RunConfig(optimizer=name, learning_rate=0.05, weight_decay=weight_decay)
    random = np.random.default_rng(0)
    start = random.normal(size=7).astype(np.float32)
    layer = torch.nn.Linear(7, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(start)[None])
    theirs = build_torch(config, layer)
    ours = build_optimizer(config)
    parameters = jnp.asarray(start)
    state = ours.init(parameters)
    for step in range(10):
        gradient, rate = random.normal(size=7).astype(np.float32), 0.05 / (step + 1)
        layer.weight.grad = torch.from_numpy(gradient)[None]
        theirs.param_groups[0]["lr"] = rate
        theirs.step()
        state = optax.tree_utils.tree_set(state, learning_rate=jnp.float32(rate))
        updates, state = ours.update(jnp.asarray(gradient), state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    np.testing.assert_allclose(parameters, layer.weight.detach().numpy()[0], rtol=1e-5, atol=1e-6)
    assert not np.allclose(parameters, start)
