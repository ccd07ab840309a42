"""The same weights give the same logits, whatever the framework."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.models.weights import from_torch
from trainers.contract.catalog import MODELS
from trainers.models import flax_models, torch_models

# 28×28×1 is what ships; the odd sides of the other make "SAME" padding uneven.
SHAPES = [(28, 28, 1), (19, 25, 3)]


def _pair(name: str, shape: tuple[int, int, int]) -> tuple[torch.nn.Module, Any, dict[str, Any]]:
    """A torch model, the Flax one, and its variables with the torch model's weights."""
    torch.manual_seed(0)
    model = torch_models.build(name, shape, 10)
    with torch.no_grad():
        # What begins as 0 or 1 would hide a value that is left out.
        for key, value in model.state_dict().items():
            if value.ndim == 1 and value.is_floating_point():
                frozen = name == "convnet" and "bn" in key and key.endswith("weight")
                value += 0 if frozen else 0.2 * torch.rand_like(value)
    flax_model = flax_models.build(name, 10)
    variables = jax.eval_shape(lambda: flax_model.init(jax.random.key(0), jnp.zeros((1, *shape)), train=False))
    height, width, channels = shape
    if name == "net":
        height, width, channels = ((height - 2) // 2 - 2) // 2, ((width - 2) // 2 - 2) // 2, 64
    return model, flax_model, from_torch(model, variables, (height, width, channels))


@pytest.mark.parametrize("shape", SHAPES, ids=["28x28x1", "19x25x3"])
@pytest.mark.parametrize("name", MODELS)
def test_evaluation(name: str, shape: tuple[int, int, int]) -> None:
    model, flax_model, variables = _pair(name, shape)
    x = np.random.default_rng(0).random((4, *shape), np.float32)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).numpy()
    logits = jax.jit(lambda v, x: flax_model.apply(v, x, train=False))(variables, x)
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "convnet"])
def test_training(name: str) -> None:
    """With the batch's own statistics; without dropout, whose draws differ."""
    model, flax_model, variables = _pair(name, SHAPES[0])
    x = np.random.default_rng(0).random((4, *SHAPES[0]), np.float32)
    with torch.no_grad():
        expected = model.train()(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).numpy()
    apply = jax.jit(lambda v, x: flax_model.apply(v, x, train=True, mutable=["batch_stats"]))
    logits, updated = apply(variables, x)
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)
    if name == "net":
        # The running variance differs by n / (n - 1) in its newest tenth: PyTorch's is unbiased.
        torch_means = model.state_dict()["bn1.running_mean"].numpy()
        np.testing.assert_allclose(updated["batch_stats"]["bn1"]["mean"], torch_means, atol=1e-5)
        np.testing.assert_allclose(
            updated["batch_stats"]["bn1"]["var"], model.state_dict()["bn1.running_var"].numpy(), rtol=1e-3
        )


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_changes_what_is_computed_in_and_not_what_is_kept(name: str) -> None:
    shape = (28, 28, 1)
    model = flax_models.build(name, 10, jnp.bfloat16)
    variables = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((1, *shape)), train=False))
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    logits = jax.eval_shape(lambda v: model.apply(v, jnp.zeros((2, *shape)), train=False), variables)
    assert (logits.shape, logits.dtype) == ((2, 10), jnp.dtype("float32"))
