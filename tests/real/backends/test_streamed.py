"""Images that are read batch by batch give what those held on the devices give, to the last bit."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.kit.recorder import Shelf, train_plan
from tests.kit.user_files import write_data
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.sources import user_data

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    ("backend", "devices"),
    [
        ("torch-dp", 1),
        ("jax-sharding", 3),
        *(pytest.param(name, 3, marks=pytest.mark.by_hand) for name in ("jax-pmap", "keras-jax", "mxnet-gluon")),
    ],
)
@pytest.mark.parametrize("name", mostly_by_hand(["arrays", "mapped"], "mapped"))
def test_streamed_is_resident(tmp_path: Path, backend: str, devices: int, name: str) -> None:
    value = write_data(tmp_path, name)
    config = RunConfig(
        backend=backend, model="net", dataset=value, platform="cpu", devices=devices, global_batch_size=30, epochs=2
    )
    plan = make_plan(config, user_data.examine(value))
    resident, streamed_run = (train_plan(replace(plan, streamed=streamed), shelf=Shelf()) for streamed in (False, True))
    np.testing.assert_array_equal(np.array(resident.losses()), np.array(streamed_run.losses()))
    assert len(resident.losses()) == 20
    assert resident.evaluations == streamed_run.evaluations
    assert resident.arrays == streamed_run.arrays


@pytest.mark.parametrize("backend", ["torch-dp", "jax-sharding"])
def test_a_run_that_stops_in_an_epoch_leaves_no_thread_reading(tmp_path: Path, backend: str) -> None:
    value = write_data(tmp_path, "mapped")
    config = RunConfig(backend=backend, model="mlp", dataset=value, platform="cpu", devices=1, global_batch_size=10)
    plan = replace(make_plan(config, user_data.examine(value)), streamed=True)
    recorder = train_plan(plan, stop_at=5)
    assert [step.step for step in recorder.steps] == [1, 2, 3, 4]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]
