"""Options that are built apart, all at once: devices make the curve of one, and a run goes on bit for bit."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.kit.close import assert_close, in_training
from tests.kit.only_rank import train_alone
from tests.kit.recorder import ONE_PROCESS, Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.rank.tensor_files import encode

pytestmark = pytest.mark.nightly

EVERYTHING = RunConfig(
    model="mlp", platform="cpu", devices=1, max_steps=12, optimizer="sgd", learning_rate=0.02, learning_rate_for=96,
    weight_decay=0.01, gradient_clip=1.0, schedule="one-cycle", augment="mixup", label_smoothing=0.1, normalize="data",
    freeze="*fc1*", early_stop=3, seed=3,
)  # fmt: skip
ALONE = ("torch-ddp", "torch-fsdp")
"""A rank each, of which one trains here."""
BUILTIN = [name for name, backend in BACKENDS.items() if backend.builtin and name != "keras-torch"]


def trained(config: RunConfig, shelf: Shelf, save_at: int | None = None) -> Recorder:
    if config.backend in ALONE:
        return train_alone(config, shelf, save_at=save_at)
    return train(config, save_at=save_at, shelf=shelf)


def variants(config: RunConfig) -> list[dict[str, Any]]:
    """What makes the same curve."""
    keys, found = BACKENDS[config.backend].keys, list[dict[str, Any]]()
    if config.backend in ONE_PROCESS:
        found.append({"devices": 2})
    if "mesh" in keys:
        found.append({"devices": 4, "mesh": "batch=2,model=2"})
    if "compile" in keys:
        found.append({"compile": True})
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", ["float32", pytest.param("float16", marks=pytest.mark.by_hand)])
@pytest.mark.parametrize("backend", mostly_by_hand(BUILTIN, "jax-pmap"))
def test_everything_at_once(backend: str, precision: str, tmp_path: Path) -> None:
    if precision not in BACKENDS[backend].precisions:
        pytest.skip(f"{backend} has no {precision}")
    config = replace(EVERYTHING, backend=backend, precision=precision)
    if "ema" in BACKENDS[backend].keys:
        config = replace(config, ema=0.9, accumulate=3)
    begun, file = Shelf(), tmp_path / "begun.safetensors"
    trained(replace(config, freeze="", max_steps=2), begun, save_at=2)
    file.write_bytes(b"".join(encode({name: np.asarray(array) for name, array in begun.saved[2].model.items()})))
    config = replace(config, init_from=str(file))
    curves = []
    for changes in ({}, *variants(config)):
        shelf = Shelf()
        whole = trained(replace(config, **changes), shelf, save_at=5)
        rest = trained(replace(config, **changes), after := Shelf(deepcopy(shelf.saved[5])))
        assert rest.losses() == whole.losses()[5:]
        wanted, found = ({**one.saved[12].model, **one.saved[12].state} for one in (shelf, after))
        assert wanted.keys() == found.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"{changes} {name}")
        losses = np.reshape(whole.losses(), (12, -1)).mean(axis=1).tolist()
        curves.append([*losses, whole.evaluations[-1].loss])
    for curve in curves:
        assert_close(curve, curves[0], in_training(config))
