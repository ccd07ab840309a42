"""A PyTorch model of one's own whose weights are bfloat16: saved as such, resumed bit for bit, averaged exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.backends.only_rank import train_alone
from tests.backends.recorder import Shelf
from tests.slow import mostly_slow
from trainers.config.run_config import RunConfig
from trainers.frameworks.torch.average import Average
from trainers.rank.checkpoints import TRAINED, Saved
from trainers.rank.tensor_files import Tensors, as_float32, encode, load

MODEL = """
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


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("backend", mostly_slow(["torch-ddp", "torch-fsdp", "torch-dp"], "torch-ddp"))
def test_it_is_saved_and_goes_on_bit_for_bit(backend: str, ema: float, tmp_path: Path) -> None:
    source, file = tmp_path / "net.py", tmp_path / "x.safetensors"
    source.write_text(MODEL)
    model = f"py:{source}:Net"
    config = RunConfig(backend=backend, model=model, platform="cpu", devices=1, max_steps=6, optimizer="adamw", ema=ema)
    shelf = Shelf()
    whole = train_alone(config, shelf, save_at=3)

    def stored(arrays: Tensors) -> Tensors:
        file.write_bytes(b"".join(encode(arrays)))
        return load(file)

    saved = stored(shelf.saved[3].model), stored(shelf.saved[3].state)
    trained = saved[1] if ema else saved[0]
    assert trained[f"{TRAINED if ema else ''}fc.weight"].dtype.name == "bfloat16"
    assert saved[0]["norm.running_mean"].dtype.name == "bfloat16"
    rest = train_alone(config, after := Shelf(Saved(3, *map(dict, saved))))
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
