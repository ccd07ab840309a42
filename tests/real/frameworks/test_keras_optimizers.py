"""Keras' updates are PyTorch's, number for number."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch

from tests.kit.close import assert_close, rounding
from tuiapp.trainers.config.catalog import OPTIMIZER_SLOTS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.keras.state import build_optimizer
from tuiapp.trainers.frameworks.torch.losses import LossScale
from tuiapp.trainers.frameworks.torch.ranks import build_optimizer as build_torch
from tuiapp.trainers.frameworks.torch.ranks import update

pytestmark = pytest.mark.nightly

RATES = [0.05 / (step + 1) for step in range(12)]
UPDATED = rounding(12 * 10, size=3)
"""Twelve updates, of some ten products, sums and roots each, of weights up to 3."""


@pytest.mark.parametrize("gradient_clip", [0.0, 2.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", [*OPTIMIZER_SLOTS, "sgd without momentum", "sgd with nesterov"])
def test_twelve_updates(name: str, weight_decay: float, gradient_clip: float) -> None:
    optimizer, _, variant = name.partition(" ")
    config = RunConfig(
        optimizer=optimizer,
        learning_rate=0.05,
        momentum=0.0 if variant == "without momentum" else 0.9,
        nesterov=variant == "with nesterov",
        weight_decay=weight_decay,
        gradient_clip=gradient_clip,
    )
    start, gradients = numbers()
    _compare(_keras(config, start, gradients), by_torch(config, start, gradients), start)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_weights_in_bfloat16_follow_those_in_float32(name: str) -> None:
    """In that type Adam's β₂ is 1."""
    config = RunConfig(optimizer=name, learning_rate=0.05, weight_decay=0.1)
    start, gradients = numbers()
    found = _keras(config, start, gradients, "bfloat16").astype(np.float32)
    # Twelve sums, which are rounded to what is kept.
    assert_close(found, by_torch(config, start, gradients), rounding(12, size=2, dtype="bfloat16"))
    assert not np.allclose(found, start, atol=4 / 64)


def numbers(scale: float = 1) -> tuple[Any, Any]:
    """Parameters, float32 [7], and gradients, float32 [steps, 7], with a norm of 2.6 times `scale` on the average."""
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=7).astype(np.float32), random.normal(size=(len(RATES), 7)).astype(np.float32)
    return start, gradients * np.float32(scale)


def by_torch(config: RunConfig, start: Any, gradients: Any) -> Any:
    """The parameters after all of PyTorch's updates."""
    layer = torch.nn.Linear(7, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(start)[None])
    optimizer = build_torch(config, layer)
    for gradient, rate in zip(gradients, RATES, strict=True):
        layer.weight.grad = torch.from_numpy(gradient.copy())[None]
        update(config, layer, optimizer, rate, LossScale(config, torch.device("cpu")))
    return layer.weight.detach().numpy()[0]


def _keras(config: RunConfig, start: Any, gradients: Any, dtype: str = "float32") -> Any:
    """The parameters after all of Keras' updates."""
    # Two variables: gradients are clipped by the norm over both.
    variables = [keras.Variable(part, dtype=dtype) for part in np.split(start, [3])]
    optimizer = build_optimizer(config)
    optimizer.build(variables)
    for gradient, rate in zip(gradients, RATES, strict=True):
        optimizer.learning_rate = rate
        optimizer.apply([jnp.asarray(part, dtype) for part in np.split(gradient, [3])])
    return np.concatenate([np.asarray(variable.value) for variable in variables])


def _compare(parameters: Any, expected: Any, start: Any) -> None:
    assert_close(parameters, expected, UPDATED)
    assert not np.allclose(parameters, start)
