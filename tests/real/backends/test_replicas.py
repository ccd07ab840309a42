"""A bit that flips in one device's replica is found, and named; replicas that nothing happens to are equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
import torch
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.kit.harness import launched
from tests.kit.recorder import Recorder, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.backends import jax_pmap, jax_sharding, keras_jax
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Alert, Differing, Replicas
from tuiapp.trainers.frameworks.jax.replicas import replica_checksums
from tuiapp.trainers.frameworks.torch.profile import checksums
from tuiapp.trainers.rank.replicas import Comparison, find_differing
from tuiapp.trainers.rank.reporter import Reporter

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", devices=2, epochs=2, global_batch_size=12, optimizer="sgd", checkpoint_every=0,
    eval_every=0,
)  # fmt: skip
EPOCH = make_plan(CONFIG).steps_per_epoch
FLIPPED_AT = EPOCH + 20
BIT = 22

IN_TORCH = f"""
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first = nn.Linear(784, 16)
        self.second = nn.Linear(16, classes)
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        if self.calls == {FLIPPED_AT} and os.environ["RANK"] == "1":
            self.calls += 1
            self.second.weight.data.view(torch.int32)[3, 5] ^= 1 << {BIT}
        return self.second(self.first(x.flatten(1)).relu())
"""

IN_KERAS = f"""
import os
import keras
import torch

class Flips(keras.layers.Dense):
    calls = 0

    def call(self, x, training=False):
        self.calls += bool(training)
        if self.calls == {FLIPPED_AT} and os.environ["RANK"] == "1":
            self.calls += 1
            self.kernel.value.data.view(torch.int32)[3, 5] ^= 1 << {BIT}
        return super().call(x)

def net(shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(16, "relu", name="first"), Flips(classes, name="second")]
    return keras.Sequential([keras.Input(shape), *layers])
"""


IN_MXNET = f"""
import numpy as np
from mxnet import autograd
from mxnet.gluon import nn

class Net(nn.HybridBlock):
    def __init__(self, shape, classes):
        super().__init__()
        self.first = nn.Dense(16, activation="relu")
        self.second = nn.Dense(classes)
        self.calls = 0

    def forward(self, x):
        if autograd.is_training() and x.ctx.device_id == 1:
            self.calls += 1
            if self.calls == {FLIPPED_AT}:
                with autograd.pause():
                    weight = self.second.weight.data(x.ctx)
                    changed = weight.asnumpy()
                    changed.view(np.int32)[3, 5] ^= 1 << {BIT}
                    weight[:] = changed
        return self.second(self.first(x))
"""


def check(compared: list[Replicas], alerts: list[Alert], name: str) -> None:
    """Equal after the first epoch; after the second an alert names rank 1 and the array."""
    assert [(one.step, one.replicas, one.differing) for one in compared] == [
        (EPOCH, 2, []),
        (2 * EPOCH, 2, [Differing(1, name)]),
    ]
    (alert,) = alerts
    assert (alert.kind, alert.severity, alert.rank, alert.step) == ("replicas", "error", 1, 2 * EPOCH)
    assert alert.text == (
        f"the weights of rank 1 differ from rank 0's after step {2 * EPOCH}, first in {name}; "
        f"all were equal after step {EPOCH}"
    )


MODELS = {
    "torch-ddp": (IN_TORCH, "Net", "second.weight"),
    "keras-torch": (IN_KERAS, "net", "sequential/second/kernel"),
    "mxnet-gluon": (IN_MXNET, "Net", "second.weight"),
}
"""Backend → a file with a model that does it, the model, and the array."""


@pytest.mark.parametrize("backend", mostly_by_hand(MODELS, "torch-ddp"))
def test_a_bit_of_one_rank(backend: str, tmp_path: Path) -> None:
    text, model, array = MODELS[backend]
    file = tmp_path / "net.py"
    file.write_text(text)
    config = msgspec.structs.replace(CONFIG, backend=backend, model=f"py:{file}:{model}")
    with launched(config, tmp_path / "runs") as run:
        assert run.end().status == "completed"
        check(run.of(Replicas), run.alerts(), array)


def flip(array: Array, when: Array | bool) -> Array:
    """Flips a bit of a device's own copy, if it is device 1."""
    bits = lax.bitcast_convert_type(array, jnp.uint32)
    flipped = lax.bitcast_convert_type(bits.at[(0,) * array.ndim].add(1 << BIT), jnp.float32)
    return jnp.where((lax.axis_index("batch") == 1) & when, flipped, array)


def flip_in_replicated(array: Array, when: Array | bool) -> Array:
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",))
    return jax.shard_map(flip, mesh=mesh, in_specs=(P(), P()), out_specs=P(), check_vma=False)(array, when)


def in_flax(step: Callable[..., Any], flip: Callable[..., Array]) -> Callable[..., Any]:
    def and_flip(*arguments: Any) -> Any:
        state, *rest = step(*arguments)
        params = dict(state.params)
        params["fc2"] = {**params["fc2"], "kernel": flip(params["fc2"]["kernel"], state.step == FLIPPED_AT)}
        return state.replace(params=params), *rest

    return and_flip


def in_keras(step: Callable[..., Any]) -> Callable[..., Any]:
    def and_flip(self: keras_jax.Training, state: keras_jax.State, *arguments: Any) -> Any:
        updated, *rest = step(self, state, *arguments)
        trainable = list(updated.trainable)
        number = [variable.path for variable in self.model.trainable_variables].index("fc2/kernel")
        trainable[number] = flip_in_replicated(trainable[number], self.steps_made(updated) == FLIPPED_AT)
        return updated._replace(trainable=trainable), *rest

    return and_flip


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", ["jax-sharding", "jax-pmap", "keras-jax"])
def test_a_bit_of_one_device(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "jax-pmap":
        monkeypatch.setattr(jax_pmap, "make_step", in_flax(jax_pmap.make_step, flip))
    elif backend == "jax-sharding":
        monkeypatch.setattr(jax_sharding, "make_step", in_flax(jax_sharding.make_step, flip_in_replicated))
    else:
        monkeypatch.setattr(keras_jax.Training, "step", in_keras(keras_jax.Training.step))
    told = train(msgspec.structs.replace(CONFIG, backend=backend))
    names = {"jax-pmap": "fc2.kernel", "jax-sharding": "params.fc2.kernel", "keras-jax": "fc2/kernel"}
    check(told.compared, told.alerts, names[backend])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex128]
)
def test_every_bit_counts(dtype: torch.dtype) -> None:
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.arange(6 * width, dtype=torch.uint8)
    # Not contiguous, as convolutions' weights in channels-last memory are.
    of = [checksums([raw.view(dtype).view(2, 3).t()]).item()]
    for byte in range(len(raw)):
        for bit in range(8):
            changed = raw.clone()
            changed[byte] ^= 1 << bit
            of.append(checksums([changed.view(dtype).view(2, 3).t()]).item())
    assert of.count(of[0]) == 1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int8, jnp.bool_, jnp.complex64])
def test_each_device_adds_up_its_own(dtype: Any) -> None:
    """In an array that claims to be replicated, and is not."""
    mesh = Mesh(np.array(jax.devices()[:3]), ("batch",))
    sharding = NamedSharding(mesh, P())
    ones = [jnp.asarray([number > 0, 1, 0], dtype) for number in range(3)]
    parts = [jax.device_put(one, device) for one, device in zip(ones, mesh.devices, strict=True)]
    tree = {"one": jax.make_array_from_single_device_arrays((3,), sharding, parts), "two": jnp.zeros(2)}
    tree["two"] = jax.device_put(tree["two"], sharding)
    names, sums = replica_checksums(make_plan(CONFIG), tree, sharding)(tree)
    assert names == ["one", "two"]
    assert find_differing(names, sums) == [Differing(0, "one")]


def test_the_odd_one_out_is_named() -> None:
    names = ["a", "b", "c"]
    sums = np.array([[1, 2, 3]] * 5, np.uint32)
    assert find_differing(names, sums) == []
    sums[3, 1:] = 7
    assert find_differing(names, sums) == [Differing(3, "b")]
    sums[0, 2] = 8
    assert find_differing(names, sums) == [Differing(0, "c"), Differing(3, "b")]
    assert find_differing(names, np.array([[1, 2, 3], [1, 9, 3]])) == [Differing(1, "b")]
    # Each another seed.
    assert find_differing(names, np.arange(9).reshape(3, 3)) == [Differing(1, "a"), Differing(2, "a")]


def test_an_alert_comes_once_and_ends() -> None:
    recorder = Recorder()
    comparison = Comparison(cast(Reporter, recorder))
    equal = np.zeros((8, 1), np.int32)
    parted = equal.copy()
    parted[[5, 6]] = 1
    for step, sums in enumerate([equal, parted, parted, equal, equal], start=1):
        comparison.add(step, (["w"], sums))
    assert [len(one.differing) for one in recorder.compared] == [0, 2, 2, 0, 0]
    first, second = recorder.alerts
    assert first.text == (
        "the weights of ranks 5 and 6 differ from those of most ranks after step 2, first in w; "
        "all were equal after step 1"
    )
    assert (first.rank, second.rank, second.ended, second.severity) == (5, 5, True, "info")
    assert second.text == "all replicas are equal again after step 4"
