"""Keras: its models' sizes, types and files; its updates are PyTorch's, number for number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch

from tests.kit import ROOT
from tests.kit.close import assert_close, rounding
from tests.kit.model_tasks import IMAGE_MODELS
from tests.kit.variants import mostly_by_hand
from tests.kit.weights import keras_arrays
from tuiapp.trainers.config.catalog import MODELS, OPTIMIZER_SLOTS, Shape, own_name
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.keras import models as keras_models
from tuiapp.trainers.frameworks.keras.state import build_optimizer
from tuiapp.trainers.frameworks.torch.losses import LossScale
from tuiapp.trainers.frameworks.torch.ranks import build_optimizer as build_torch
from tuiapp.trainers.frameworks.torch.ranks import update

pytestmark = pytest.mark.nightly


TEXT = ("gpt-small", (40,), 256)
CASES = [(name, *how) for name in IMAGE_MODELS for how in [((28, 28, 1), 10), ((32, 32, 3), 100), ((17, 23, 2), 2)]]


@pytest.mark.parametrize("case", mostly_by_hand([*CASES, TEXT], TEXT), ids=lambda case: case[0])
def test_weights_are_those_of_the_catalog(case: tuple[str, Shape, int]) -> None:
    """`test_parity` counts two shapes more on its way."""
    name, shape, classes = case
    # Shapes only: nothing is computed.
    with keras.StatelessScope():
        model = keras_models.build(name, shape, classes)
    size = MODELS[name].size(shape, classes).weights
    expected = {own_name("keras-jax", weight): of_weight for weight, of_weight in size.items()}
    assert {variable.path: tuple(variable.shape) for variable in model.trainable_variables} == expected


def test_a_seed_gives_each_weight_of_a_transformer_numbers_of_its_own() -> None:
    def made(seed: int) -> dict[str, Any]:
        keras.utils.set_random_seed(seed)
        return keras_arrays(keras_models.build(*TEXT))

    first = made(1)
    assert all((first[name] == array).all() for name, array in made(1).items())
    drawn = {name: array for name, array in first.items() if name.endswith(("kernel", "embeddings"))}
    assert len({array.flat[0] for array in drawn.values()}) == len(drawn) == 19
    for name, array in drawn.items():
        into_stream = name.endswith(("out/kernel", "fc2/kernel"))
        assert array.std() == pytest.approx(0.02 / (8**0.5 if into_stream else 1), rel=0.05), name


@pytest.mark.by_hand
@pytest.mark.parametrize("name", mostly_by_hand(MODELS, *(name for name in MODELS if name != "resnet18")))
def test_bfloat16_changes_what_is_computed_in_and_not_what_is_kept(name: str) -> None:
    shape, each = ((28, 28, 1), ()) if name in IMAGE_MODELS else ((16,), (16,))
    model = keras_models.build(name, shape, 10, "bfloat16")
    assert {variable.dtype for variable in model.weights} == {"float32"}
    assert (model.output_shape, model.outputs[0].dtype) == ((None, *each, 10), "float32")
    *hidden, logits = model.layers[1:]
    assert {layer.compute_dtype for layer in hidden} == {"bfloat16"}
    assert logits.compute_dtype == "float32"


@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, "float32") for name in ("mlp", "net", "convnet", "gpt-small")), ("gpt-small", "float16")],
)
def test_plain_keras_loads_what_is_saved(name: str, precision: str, tmp_path: Path) -> None:
    shape = (28, 28, 1) if name in IMAGE_MODELS else (16,)
    model = keras_models.build(name, shape, 10, precision)
    assert {type(layer).__module__.partition(".")[0] for layer in model.layers} == {"keras"}
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    random = np.random.default_rng(0)
    x = random.random((4, *shape), np.float32) if name in IMAGE_MODELS else random.integers(0, 10, (4, *shape))
    # By a compiled program, which on a CPU has to do without products of float16 that XLA lacks there.
    found, wanted = (one.predict(x, verbose=0) for one in (loaded, model))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.by_hand
def test_on_pytorch_the_models_are_the_same() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "",
            "tests/kit/on_torch.py",
            "-k",
            "keras",
        ],
        cwd=ROOT,
        env={**os.environ, "TUIAPP_TEST_KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout


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
