"""The Keras models: their sizes, their types, their files."""

from __future__ import annotations

import os
import subprocess
import sys
from math import prod
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.model_tasks import IMAGE_MODELS
from trainers.config.catalog import MODELS
from trainers.frameworks.keras import models as keras_models


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "classes"), [((28, 28, 1), 10), ((32, 32, 3), 100), ((17, 23, 2), 2)])
@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_parameters_are_those_of_the_catalog(name: str, shape: tuple[int, int, int], classes: int) -> None:
    """`test_parity` counts two shapes more on its way."""
    # Shapes only: nothing is computed.
    with keras.StatelessScope():
        model = keras_models.build(name, shape, classes)
    made = sum(prod(variable.shape) for variable in model.trainable_variables)
    assert MODELS[name].size(shape, classes).parameters == made


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "resnet18" else ()) for name in IMAGE_MODELS]
)
def test_bfloat16_changes_what_is_computed_in_and_not_what_is_kept(name: str) -> None:
    model = keras_models.build(name, (28, 28, 1), 10, "bfloat16")
    assert {variable.dtype for variable in model.weights} == {"float32"}
    assert (model.output_shape, model.outputs[0].dtype) == ((None, 10), "float32")
    *hidden, logits = model.layers[1:]
    assert {layer.compute_dtype for layer in hidden} == {"bfloat16"}
    assert logits.compute_dtype == "float32"


@pytest.mark.parametrize("name", ["mlp", "net", "convnet"])
def test_plain_keras_loads_what_is_saved(name: str, tmp_path: Path) -> None:
    model = keras_models.build(name, (28, 28, 1), 10)
    assert {type(layer).__module__.partition(".")[0] for layer in model.layers} == {"keras"}
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    x = np.random.default_rng(0).random((4, *(28, 28, 1)), np.float32)
    np.testing.assert_array_equal(loaded(x), model(x))


def test_what_a_users_keras_json_says_changes_no_model() -> None:
    keras.config.set_image_data_format("channels_first")
    keras.config.set_floatx("float16")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras_models.build("net", (19, 25, 3), 10)
        assert {variable.dtype for variable in model.weights} == {"float32"}
        assert model.get_layer("conv1").output.shape == (None, 17, 23, 32)
    finally:
        keras.config.set_image_data_format("channels_last")
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


@pytest.mark.slow
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
            "tests/frameworks/on_torch.py",
            "-k",
            "keras",
        ],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TUIAPP_TEST_KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout
