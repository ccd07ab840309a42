"""The Keras models: their sizes, their types, their files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.kit import ROOT
from tests.kit.model_tasks import IMAGE_MODELS
from tests.kit.variants import mostly_by_hand
from tests.kit.weights import keras_arrays
from tuiapp.trainers.config.catalog import MODELS, Shape, own_name
from tuiapp.trainers.frameworks.keras import models as keras_models

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
