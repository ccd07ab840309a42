"""MXNet's models and optimizers are PyTorch's, number for number; they run in their own interpreter, all at once."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from tests.kit import ROOT
from tests.kit.close import assert_close, logits
from tests.kit.model_tasks import IMAGE_MODELS
from tests.kit.mxnet_environment import mxnet_python
from tests.kit.weights import gluon_arrays
from tests.real.frameworks.test_keras import RATES, UPDATED, by_torch, numbers
from tests.real.frameworks.test_parity import SHAPES, check_statistics, random_torch
from tuiapp.trainers.config.catalog import OPTIMIZER_SLOTS
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

FORWARD = {
    f"{name}-{number}-{'training' if train else 'evaluation'}": (name, shape, train)
    for name in IMAGE_MODELS
    for number, shape in enumerate(SHAPES)
    for train in (False, True)
    # Dropout's draws differ; and training one shape is enough.
    if not train or (name != "convnet" and number == 0)
}
UPDATES = {
    f"{name}-{decay}-{clip}": RunConfig(
        optimizer=name.partition(" ")[0],
        learning_rate=0.05,
        momentum=0.0 if "without" in name else 0.9,
        nesterov="nesterov" in name,
        weight_decay=decay,
        gradient_clip=clip,
    )
    for name in [*OPTIMIZER_SLOTS, "sgd without momentum", "sgd with nesterov"]
    for decay in (0.0, 0.1)
    for clip in (0.0, 2.0)
}
SMALL = {f"{name}-small": RunConfig(optimizer=name, learning_rate=0.05) for name in ("adam", "adamw")}
"""With gradients as small as ε, where Adam's two ways to add it are far apart."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Case → what MXNet computed."""
    python, directory = mxnet_python(), tmp_path_factory.mktemp("mxnet")
    for case, (name, shape, train) in FORWARD.items():
        arrays: dict[str, Any] = {"x": images(shape), **gluon_arrays(random_torch(name, shape))}
        np.savez(directory / f"{case}.npz", **arrays)
        (directory / f"{case}.json").write_bytes(msgspec.json.encode({"model": name, "train": train}))
    for case, config in {**UPDATES, **SMALL}.items():
        start, gradients = numbers(1e-8 if case in SMALL else 1)
        np.savez(directory / f"{case}.npz", start=start, gradients=gradients)
        (directory / f"{case}.json").write_bytes(msgspec.json.encode({"config": config, "rates": RATES}))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(python), "-P", "-m", "tests.kit.on_mxnet", str(directory)]
    subprocess.run(command, check=True, env=environment)
    return {case: dict(np.load(directory / f"{case}.out.npz")) for case in {**FORWARD, **UPDATES, **SMALL}}


def images(shape: tuple[int, int, int]) -> Any:
    """Four images, float32 [4, C, H, W]."""
    return np.random.default_rng(0).random((4, *shape), np.float32).transpose(0, 3, 1, 2).copy()


@pytest.mark.parametrize("case", FORWARD)
def test_the_same_logits(case: str, found: dict[str, dict[str, Any]]) -> None:
    name, shape, train = FORWARD[case]
    model = random_torch(name, shape).train(train)
    before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model(torch.from_numpy(images(shape))).numpy()
    assert_close(found[case]["logits"], expected, logits(name, float(np.abs(expected).max())))
    if train and name == "net":
        mean, variance = (found[case][f"bn1.running_{part}"] for part in ("mean", "var"))
        check_statistics(mean, variance, before, model.state_dict())


@pytest.mark.parametrize("case", [*UPDATES, *SMALL])
def test_twelve_updates(case: str, found: dict[str, dict[str, Any]]) -> None:
    config = {**UPDATES, **SMALL}[case]
    start, gradients = numbers(1e-8 if case in SMALL else 1)
    expected = by_torch(config, start, gradients)
    first, second = found[case]["parameters"]
    np.testing.assert_array_equal(first, second)
    assert_close(first, expected, UPDATED)
    assert not np.allclose(first, start)
