"""The whole test set, every example once, whatever the number of devices, also where they do not divide it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly

EXAMPLES = 101
"""In the test set: a prime number."""


@pytest.mark.by_hand
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "backend",
    [
        name
        for name, backend in BACKENDS.items()
        # DataParallel has one device on the CPU.
        if backend.builtin and backend.max_cpu_devices is None
    ],
)
def test_one_to_four_devices_find_the_same(backend: str, runs_dir: Path, tmp_path: Path) -> None:
    arrays = datasets.load(find_dataset("digits"))
    path = tmp_path / "odd.npz"
    np.savez(
        path,
        x_train=arrays.x_train[:120],
        y_train=arrays.y_train[:120],
        x_test=arrays.x_test[:EXAMPLES],
        y_test=arrays.y_test[:EXAMPLES],
    )
    found = []
    for devices in (1, 2, 3, 4):
        # One step at a rate that changes nothing: all of them evaluate the same weights.
        config = RunConfig(
            backend=backend,
            model="mlp",
            dataset=f"npz:{path}",
            platform="cpu",
            devices=devices,
            global_batch_size=12,
            optimizer="sgd",
            learning_rate=1e-12,
            epochs=1,
            max_steps=1,
        )
        with launched(config, runs_dir) as run:
            assert run.end().status == "completed"
            found += run.evaluations()
    assert [one.examples for one in found] == [EXAMPLES] * 4
    assert len({one.accuracy for one in found}) == 1
    assert_close([one.loss for one in found], [found[0].loss] * 4, in_training(config))
    print(f"\n{backend}: test losses {[one.loss for one in found]}")
