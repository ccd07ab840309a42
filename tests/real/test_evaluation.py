"""The whole test set, whatever the number of devices, and ranks whose evaluations are no better any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import MLP, launched, resumed
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert
from tuiapp.trainers.contract.manifest import MODEL_FILE
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


def test_real_ranks_come_to_the_same_end_and_a_resumed_run_to_that_of_one_that_was_not_stopped(runs_dir: Path) -> None:
    config = msgspec.structs.replace(MLP, epochs=9, early_stop=4, learning_rate=1e-30, checkpoint_every=1)
    # At such a rate no step changes a weight.
    with launched(config, runs_dir) as run:
        run.at_step(make_plan(config).steps_per_epoch * 2)
        sidecars.send_command(run.run.commands, "stop")
        assert run.end().status == "stopped"
        run.wait_gone()
    with resumed(run.run) as again:
        end = again.end()
        total = make_plan(config).steps_per_epoch
        assert (end.status, end.summary.steps) == ("completed", 5 * total)
        assert end.reason == f"early stop: {5 * total:,} of {9 * total:,} steps"
        (alert,) = [alert for alert in again.of(Alert) if alert.kind == "early-stop"]
        assert alert.text.startswith("early stop: test accuracy was not the best in 4 evaluations in a row")
        assert again.steps_of(1)[-1] == 5 * total
        assert (run.run.export / MODEL_FILE).exists()
