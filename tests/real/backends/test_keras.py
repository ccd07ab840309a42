"""What Keras on JAX saves and exports, and the names of JAX that may go."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.npz import make_arrays, write_npz
from tests.kit.recorder import Shelf, train
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly


CONVNET = RunConfig(backend="keras-jax", model="convnet", platform="cpu", devices=2, max_steps=15)


class Exports(Shelf):
    """Keeps the exported model, as plain Keras loads it."""

    model: keras.Model

    def export_file(self, name: str, write: Callable[[Path], object]) -> None:
        def load(path: Path) -> None:
            write(path)
            self.model = keras.saving.load_model(path)

        super().export_file(name, load)


@pytest.mark.by_hand
def test_what_is_saved_and_what_is_exported() -> None:
    shelf = Exports()
    told = train(CONVNET, shelf=shelf)
    saved = shelf.saved[15]
    assert {"conv1/kernel", "bn1/moving_mean", "fc2/bias"} <= set(saved.model)
    assert {"optimizer.iteration", "optimizer.fc2_bias_momentum", "random.0"} <= set(saved.state)
    # Dropout has drawn once a step.
    assert saved.state["random.0"].tolist()[1] == 15
    # What was exported is what was evaluated last.
    for variable in shelf.model.weights:
        np.testing.assert_array_equal(np.asarray(variable.value), saved.model[variable.path])
    arrays = datasets.load(find_dataset("digits"))
    assert arrays.x_test.dtype == np.uint8
    logits = np.asarray(shelf.model(arrays.x_test))
    assert (logits.argmax(1) == arrays.y_test).mean() == pytest.approx(told.evaluations[-1].accuracy)


@pytest.mark.by_hand
def test_what_was_trained_on_floats_takes_floats_as_they_are(tmp_path: Path) -> None:
    shelf = Exports()
    stored = make_arrays((28, 28), train=300, test=91)
    name = write_npz(tmp_path / "floats.npz", stored)
    told = train(msgspec.structs.replace(CONVNET, dataset=name), shelf=shelf)
    logits = np.asarray(shelf.model(stored["x_test"][..., np.newaxis]))
    assert (logits.argmax(1) == stored["y_test"]).mean() == pytest.approx(told.evaluations[-1].accuracy)
    assert "rescaling" not in [layer.name for layer in shelf.model.layers]


@pytest.mark.by_hand
def test_a_language_model_is_exported_as_it_was_evaluated_last() -> None:
    shelf = Exports()
    config = msgspec.structs.replace(CONVNET, model="gpt-small", dataset="shakespeare", context=16, max_steps=5)
    told = train(config, shelf=shelf)
    assert {"tokens/embeddings", "block1_qkv/kernel", "head/kernel"} <= set(shelf.saved[5].model)
    arrays = datasets.load(find_dataset("shakespeare", 16))
    losses = keras.losses.sparse_categorical_crossentropy(arrays.y_test, shelf.model(arrays.x_test), from_logits=True)
    assert_close(np.mean(losses), told.evaluations[-1].loss, in_training(config))


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("jax._src.distributed", "global_state.client", ()),
        ("jax._src.xla_bridge", "make_cpu_client", ("collectives",)),
        ("jaxlib._jax", "make_gloo_tcp_collectives", ("distributed_client", "interface")),
        ("jax.extend.backend", "register_backend_factory", ("priority", "fail_quietly")),
        (
            "jax.distributed",
            "initialize",
            ("cluster_detection_method", "coordinator_bind_address", "heartbeat_timeout_seconds"),
        ),
    ],
)
def test_it_is_there(module: str, name: str, arguments: tuple[str, ...]) -> None:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"jax {jax.__version__} has no {module}.{name}, which `connect` needs"
        found = getattr(found, part)
    # What is compiled tells its arguments in its docstring alone.
    takes = (
        (found.__doc__ or "") if "nanobind" in str(type(found)) else str(inspect.signature(found)) if arguments else ""
    )
    for argument in arguments:
        assert f"{argument}:" in takes, f"jax {jax.__version__}: {module}.{name} takes no {argument!r}, but {takes}"


def test_the_preemption_service_can_be_disabled() -> None:
    assert hasattr(jax.config, "jax_enable_preemption_service"), f"jax {jax.__version__} has no such setting"
