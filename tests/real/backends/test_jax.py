"""The JAX backends on the virtual devices of this process."""

from __future__ import annotations

import jax
import msgspec
import numpy as np
import numpy.typing as npt
import optax
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.recorder import JAX_BACKENDS, Recorder, check_predictions, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax.devices import scale
from tuiapp.trainers.frameworks.jax.state import create
from tuiapp.trainers.frameworks.keras import state as keras_state
from tuiapp.trainers.sources import datasets

MLP = RunConfig(
    model="mlp", platform="cpu", optimizer="sgd", learning_rate=0.05, epochs=2, max_steps=30, schedule="cosine"
)

pytestmark = [pytest.mark.nightly, pytest.mark.parametrize("backend", mostly_by_hand(JAX_BACKENDS, "jax-sharding"))]


def _train(backend: str, devices: int, base: RunConfig = MLP, *, stop_at: int = 0, **changes: object) -> Recorder:
    return train(msgspec.structs.replace(base, backend=backend, devices=devices, **changes), stop_at)


def test_any_number_of_devices_gives_the_same_curve(backend: str) -> None:
    curves, results = {}, {}
    for devices in (1, 2, 4):
        told = _train(backend, devices)
        losses = np.array(told.losses())
        assert losses.shape == (30, devices)
        assert [step.step for step in told.steps] == list(range(1, 31))
        assert {step.examples for step in told.steps} == {48 // devices}
        curves[devices], results[devices] = losses.mean(axis=1), told.evaluations[-1]
    for devices in (2, 4):
        assert_close(curves[devices], curves[1], in_training(MLP))
    assert curves[1][-1] < 0.9 * curves[1][0]
    assert {result.accuracy for result in results.values()} == {results[1].accuracy}
    assert_close(results[4].loss, results[1].loss, in_training(MLP))


@pytest.mark.by_hand
def test_each_device_tells_the_loss_of_its_own_examples(backend: str) -> None:
    """The first step's losses are those of the initial weights on each device's columns of the first global batch."""
    told = _train(backend, 3, max_steps=1)
    arrays = datasets.load(find_dataset("digits"))
    rows = datasets.epoch_order(len(arrays.x_train), 48, MLP.seed, 1)[0]
    images = scale(jax.numpy.asarray(arrays.x_train[rows]))
    losses = _first_losses(backend, images, arrays.y_train[rows])
    assert_close(told.losses()[0], losses.reshape(3, 16).mean(axis=1), in_training(MLP, parts=3))
    assert len(set(told.losses()[0])) == 3


def _first_losses(backend: str, images: jax.Array, labels: npt.ArrayLike) -> jax.Array:
    """The loss of each image with the initial weights."""
    if backend == "keras-jax":
        logits = keras_state.create_model(make_plan(MLP))(images)
    else:
        state = create(make_plan(MLP))
        logits = state.apply_fn({"params": state.params}, images, train=False)
    losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return losses


@pytest.mark.by_hand
def test_every_test_example_counts_once(backend: str) -> None:
    """360 examples over 1, 2, 3 devices divide evenly; over 7 the last batch is filled up."""
    results, labels = [], datasets.load(find_dataset("digits")).y_test
    for devices in (1, 2, 3, 7):
        # One step at a rate that changes nothing: all of them evaluate the same weights.
        told = _train(backend, devices, max_steps=1, learning_rate=1e-12, global_batch_size=42)
        results.append(told.evaluations[-1])
        check_predictions(told.found[-1], results[-1].accuracy, labels)
    assert {result.examples for result in results} == {360}
    assert len({result.accuracy for result in results}) == 1
    assert_close([result.loss for result in results], [results[0].loss] * 4, in_training(MLP))


def test_what_is_told_of_devices_phases_and_arrays(backend: str) -> None:
    told = _train(backend, 2, max_steps=3, model="net", optimizer="adam", schedule="linear", warmup_steps=2)
    assert told.ranks == [(0, "cpu:0"), (1, "cpu:1")]
    assert told.phases == ["compiling", "training", "evaluating", "checkpointing"]
    assert [step.learning_rate for step in told.steps] == pytest.approx([0.025, 0.05, 0.05])
    batch = told.arrays["batch"]
    assert (batch.dtype, batch.mesh, batch.spec[0]) == ("float32", {"batch": 2}, "batch")
    assert [(shard.rank, shard.device, shard.bytes) for shard in batch.shards] == [
        (0, "cpu:0", 24 * 28 * 28 * 4),
        (1, "cpu:1", 24 * 28 * 28 * 4),
    ]
    largest, moments = ("fc1/kernel", "momentum velocity") if backend == "keras-jax" else ("fc1.kernel", "mu nu")
    of_optimizer = [f"optimizer {moment} of {largest}" for moment in moments.split()]
    assert set(told.arrays) == {"batch", "labels", f"parameter {largest}", *of_optimizer}
    # pmap's arrays have a leading axis with a replica per device; sharded arrays are whole on each.
    moment = told.arrays[of_optimizer[0]]
    assert all(shard.bytes == 1600 * 128 * 4 for shard in moment.shards)
    assert moment.shape == ([2, 1600, 128] if backend == "jax-pmap" else [1600, 128])
    assert moment.spec == (["batch", None, None] if backend == "jax-pmap" else [None, None])
