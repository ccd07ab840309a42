"""The same weights give the same logits, whatever the framework."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch

from tests.kit.close import assert_close, rounding
from tests.kit.close import logits as logits_within
from tests.kit.model_tasks import IMAGE_MODELS
from tests.kit.variants import mostly_by_hand
from tests.kit.weights import from_torch, into_keras, keras_arrays
from tuiapp.trainers.config.catalog import MODELS
from tuiapp.trainers.frameworks.jax import models as flax_models
from tuiapp.trainers.frameworks.keras import models as keras_models
from tuiapp.trainers.frameworks.torch import models as torch_models

pytestmark = pytest.mark.nightly

# 28×28×1 is what ships; the odd sides of the other make "SAME" padding uneven.
SHAPES = [(28, 28, 1), (19, 25, 3)]

Shape = tuple[int, int, int]
Result = tuple[Any, dict[str, Any]]
"""Logits, and the first BatchNorm's running mean and variance after them."""


def _flax(name: str, shape: Shape, like: torch.nn.Module, x: Any, train: bool) -> Result:
    model = flax_models.build(name, 10)
    variables = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((1, *shape)), train=False))
    variables = from_torch(like, variables, _before_flatten(name, shape))
    apply = jax.jit(lambda v, x: model.apply(v, x, train=train, mutable=["batch_stats"]))
    logits, updated = apply(variables, x)
    return logits, updated.get("batch_stats", {}).get("bn1", {})


def _keras(name: str, shape: Shape, like: torch.nn.Module, x: Any, train: bool) -> Result:
    model = keras_models.build(name, shape, 10)
    assert sum(prod(v.shape) for v in model.trainable_variables) == MODELS[name].size(shape, 10).parameters
    into_keras(like, model, _before_flatten(name, shape))
    if keras.backend.backend() == "torch":
        with torch.no_grad():
            logits = model(x, training=train).numpy()
        after = keras_arrays(model)
        return logits, {"mean": after.get("bn1/moving_mean"), "var": after.get("bn1/moving_variance")}
    values = [[v.value for v in variables] for variables in (model.trainable_variables, model.non_trainable_variables)]
    logits, updated = jax.jit(lambda t, n, x: model.stateless_call(t, n, x, training=train))(*values, x)
    after = {v.path: value for v, value in zip(model.non_trainable_variables, updated, strict=True)}
    return logits, {"mean": after.get("bn1/moving_mean"), "var": after.get("bn1/moving_variance")}


def _before_flatten(name: str, shape: Shape) -> Shape:
    height, width, channels = shape
    if name == "net":
        return ((height - 2) // 2 - 2) // 2, ((width - 2) // 2 - 2) // 2, 64
    return height, width, channels


def random_torch(name: str, shape: Shape) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch_models.build(name, shape, 10)
    with torch.no_grad():
        # What begins as 0 or 1 would hide a value that is left out.
        for key, value in model.state_dict().items():
            if value.ndim == 1 and value.is_floating_point():
                frozen = name == "convnet" and "bn" in key and key.endswith("weight")
                value += 0 if frozen else 0.2 * torch.rand_like(value)
    return model


FRAMEWORKS = pytest.mark.parametrize("forward", [_flax, _keras], ids=["flax", "keras"])
Forward = Callable[[str, Shape, torch.nn.Module, Any, bool], Result]


@FRAMEWORKS
@pytest.mark.parametrize("shape", mostly_by_hand(SHAPES, SHAPES[1]), ids=["28x28x1", "19x25x3"])
@pytest.mark.parametrize("name", mostly_by_hand(IMAGE_MODELS, "net"))
def test_evaluation(name: str, shape: Shape, forward: Forward) -> None:
    model = random_torch(name, shape).eval()
    x = np.random.default_rng(0).random((4, *shape), np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).numpy()
    logits, _ = forward(name, shape, model, x, False)
    assert_close(logits, expected, logits_within(name, float(np.abs(expected).max())))


@FRAMEWORKS
@pytest.mark.parametrize("name", mostly_by_hand([name for name in IMAGE_MODELS if name != "convnet"], "mlp", "net"))
def test_training(name: str, forward: Forward) -> None:
    """With the batch's own statistics; without dropout, whose draws differ."""
    model = random_torch(name, SHAPES[0])
    x = np.random.default_rng(0).random((4, *SHAPES[0]), np.float32)
    before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    logits, statistics = forward(name, SHAPES[0], model, x, True)
    with torch.no_grad():
        expected = model.train()(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).numpy()
    assert_close(logits, expected, logits_within(name, float(np.abs(expected).max())))
    if name == "net":
        check_statistics(statistics["mean"], statistics["var"], before, model.state_dict())


def check_statistics(mean: Any, variance: Any, before: dict[str, Any], after: dict[str, torch.Tensor]) -> None:
    """Of the first BatchNorm after a training step of four images of 28×28 pixels; PyTorch's before and after it."""
    examples = 4 * 26 * 26
    # A sum over all of them, and the products that are added up in each.
    within = rounding(examples + 9)
    assert_close(mean, after["bn1.running_mean"].numpy(), within)
    # Of the newest tenth PyTorch's variance is unbiased: n / (n - 1) of the others'.
    old = 0.9 * before["bn1.running_var"]
    assert_close(variance, old + (after["bn1.running_var"].numpy() - old) * (examples - 1) / examples, within)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_changes_what_is_computed_in_and_not_what_is_kept(name: str) -> None:
    one, each = ((28, 28, 1), ()) if name in IMAGE_MODELS else ((16,), (16,))
    model = flax_models.build(name, 10, jnp.bfloat16)
    variables = jax.eval_shape(lambda: model.init(jax.random.key(0), flax_models.empty(one), train=False))
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    logits = jax.eval_shape(lambda v: model.apply(v, flax_models.empty(one), train=False), variables)
    assert (logits.shape, logits.dtype) == ((1, *each, 10), jnp.dtype("float32"))


@pytest.mark.by_hand
def test_a_language_model_computes_in_float16_on_a_cpu_too() -> None:
    tokens = jnp.arange(32).reshape(2, 16) % 10
    variables = flax_models.build("gpt-small", 10).init(jax.random.key(0), tokens, train=False)
    half, single = (
        jax.jit(partial(flax_models.build("gpt-small", 10, dtype).apply, train=False))(variables, tokens)
        for dtype in (jnp.float16, jnp.float32)
    )
    assert_close(half, single, logits_within("gpt-small", float(np.abs(single).max()), "float16"))
    assert not np.array_equal(half, single)
