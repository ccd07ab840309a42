"""Optax's updates are PyTorch's, number for number: clipping, weight decay, momentum and a changing rate."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from tests.kit.close import assert_close, rounding
from tuiapp.trainers.config.catalog import OPTIMIZER_SLOTS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax.state import build_optimizer
from tuiapp.trainers.frameworks.torch.losses import LossScale
from tuiapp.trainers.frameworks.torch.ranks import build_optimizer as build_torch
from tuiapp.trainers.frameworks.torch.ranks import update

pytestmark = pytest.mark.nightly

CASES = [(name, False) for name in OPTIMIZER_SLOTS] + [("sgd", True)]
"""Optimizer, and whether its momentum looks ahead."""
SHAPES = {"bias": (3,), "weight": (3, 7)}
"""Two parameters: the norm that is clipped is that of both together."""


@pytest.mark.parametrize("gradient_clip", [0.0, 1.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("name", "nesterov"), CASES)
def test_ten_updates(name: str, nesterov: bool, weight_decay: float, gradient_clip: float) -> None:
    config = RunConfig(
        optimizer=name, nesterov=nesterov, weight_decay=weight_decay, gradient_clip=gradient_clip, learning_rate=0.05
    )
    random = np.random.default_rng(0)
    start = {key: random.normal(size=shape).astype(np.float32) for key, shape in SHAPES.items()}
    layer = torch.nn.Linear(7, 3)
    layer.load_state_dict({key: torch.from_numpy(array) for key, array in start.items()})
    theirs, ours = build_torch(config, layer), build_optimizer(config)
    parameters = {key: jnp.asarray(array) for key, array in start.items()}
    state = ours.init(parameters)
    norms = []
    for step in range(10):
        # From below the norm that is clipped to, to above it.
        scale, rate = 0.1 * (step + 1), 0.05 / (step + 1)
        gradients = {key: (scale * random.normal(size=shape)).astype(np.float32) for key, shape in SHAPES.items()}
        norms.append(np.sqrt(sum((array**2).sum() for array in gradients.values())))
        for key, parameter in layer.named_parameters():
            parameter.grad = torch.from_numpy(gradients[key].copy())
        update(config, layer, theirs, rate, LossScale(config, torch.device("cpu")))
        state = optax.tree_utils.tree_set(state, learning_rate=jnp.float32(rate))
        updates, state = ours.update(gradients, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    assert min(norms) < 1.5 < max(norms)
    for key, parameter in layer.named_parameters():
        # Ten updates, of some ten products, sums and roots each, of weights up to 3.
        assert_close(parameters[key], parameter.detach().numpy(), rounding(10 * 10, size=3))
        assert not np.allclose(parameters[key], start[key])


def test_clipping_and_decay_each_change_the_update() -> None:
    """With sgd, because the first steps of the others do not depend on the scale of the gradient."""
    results = set()
    for weight_decay, gradient_clip in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.5), (0.1, 0.5)]:
        config = RunConfig(optimizer="sgd", weight_decay=weight_decay, gradient_clip=gradient_clip)
        torch.manual_seed(0)
        layer = torch.nn.Linear(7, 3)
        optimizer = build_torch(config, layer)
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        update(config, layer, optimizer, 0.1, LossScale(config, torch.device("cpu")))
        results.add(tuple(layer.weight.flatten().tolist()))
    assert len(results) == 4
