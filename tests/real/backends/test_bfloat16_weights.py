"""A model of one's own whose weights are bfloat16: saved as such, resumed bit for bit, averaged in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.kit.only_rank import train_alone
from tests.kit.recorder import Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch.losses import Average
from tuiapp.trainers.rank.checkpoints import TRAINED, Saved
from tuiapp.trainers.rank.tensor_files import Tensors, as_float32, encode, load

pytestmark = pytest.mark.nightly

TORCH = """
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        height, width, channels = shape
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * height * width, classes)
        self.bfloat16()

    def forward(self, x):
        return self.fc(self.norm(self.conv(x.bfloat16())).relu().flatten(1))
"""
FLAX = """
import flax.linen as nn
from jax.numpy import bfloat16

class Net(nn.Module):
    shape: tuple[int, int, int]
    classes: int

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(4, (3, 3), dtype=bfloat16, param_dtype=bfloat16)(x)
        x = nn.BatchNorm(not train, dtype=bfloat16, param_dtype=bfloat16)(x)
        x = nn.relu(x).reshape(len(x), -1)
        return nn.Dense(self.classes, name="fc", dtype=bfloat16, param_dtype=bfloat16)(x)
"""
KERAS = """
import keras
from keras import layers

def Net(shape, classes):
    policy = keras.DTypePolicy("bfloat16")
    images = keras.Input(shape)
    x = layers.Conv2D(4, 3, padding="same", name="conv", dtype=policy)(images)
    x = layers.ReLU(dtype=policy)(layers.BatchNormalization(name="norm", dtype=policy)(x))
    return keras.Model(images, layers.Dense(classes, name="fc", dtype=policy)(layers.Flatten(dtype=policy)(x)))
"""
SOURCES = {"torch": TORCH, "jax": FLAX, "keras": KERAS}
WEIGHTS = {"torch": "fc.weight", "jax": "params.fc.kernel", "keras": "fc/kernel"}
ALONE = ["torch-ddp", "torch-fsdp", "torch-dp"]
EACH = [*ALONE, "jax-sharding", "jax-pmap", "keras-jax"]


def trained(config: RunConfig, shelf: Shelf, save_at: int | None = None) -> Recorder:
    return (train_alone if config.backend in ALONE else train)(config, save_at=save_at, shelf=shelf)


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("backend", mostly_by_hand(EACH, "torch-ddp", "jax-sharding"))
def test_it_is_saved_and_goes_on_bit_for_bit(backend: str, ema: float, tmp_path: Path) -> None:
    source, file = tmp_path / "net.py", tmp_path / "x.safetensors"
    framework = backend.partition("-")[0]
    source.write_text(SOURCES[framework])
    config = RunConfig(
        backend=backend, model=f"py:{source}:Net", platform="cpu", devices=1, max_steps=6, optimizer="adamw", ema=ema
    )
    shelf = Shelf()
    whole = trained(config, shelf, save_at=3)

    def stored(arrays: Tensors) -> Tensors:
        file.write_bytes(b"".join(encode(arrays)))
        return load(file)

    saved = stored(shelf.saved[3].model), stored(shelf.saved[3].state)
    model, weight = saved[0], WEIGHTS[framework]
    weights = Saved(3, *map(dict, saved)).part(TRAINED) if ema else model
    assert (weights[weight].dtype.name, model[weight].dtype.name) == ("bfloat16", "float32" if ema else "bfloat16")
    rest = trained(config, after := Shelf(Saved(3, *map(dict, saved))))
    assert rest.losses() == whole.losses()[3:]
    wanted, found = ({**one.saved[6].model, **one.saved[6].state} for one in (shelf, after))
    assert wanted.keys() == found.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(as_float32(found[name]), as_float32(array), err_msg=name)


def test_a_slow_average_is_not_rounded_away() -> None:
    model = nn.Linear(2, 2, dtype=torch.bfloat16)
    nn.init.constant_(model.weight, 1)
    average = Average(RunConfig(ema=0.999), model)
    nn.init.constant_(model.weight, 2)
    for step in range(10_000, 11_000):
        average.update(step)
    wanted = torch.full((2, 2), 2 - 0.999**1000)
    torch.testing.assert_close(average.kept["weight"], wanted)
    with average.used():
        torch.testing.assert_close(model.weight, wanted.bfloat16())
    torch.testing.assert_close(average.kept["weight"], wanted)
    assert model.weight.eq(2).all()
