"""The JAX backends on the virtual devices of this process."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.recorder import JAX_BACKENDS, Recorder, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.run_config import RunConfig

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
