"""Images read batch by batch and steps that are profiled compute what they would have computed."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from tests.kit import recorder
from tests.kit.recorder import Shelf, train_plan
from tests.kit.user_files import write_data
from tests.kit.variants import mostly_by_hand
from tests.real.backends.test_learning_rate import CONFIG
from tuiapp.trainers.config.memory import estimate_memory
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import StepMemory
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


@pytest.mark.parametrize(("backend", "devices"), [("jax-sharding", 2), ("torch-dp", 1)])
def test_the_losses_are_the_same(backend: str, devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, devices=devices)
    plain = recorder.train(config)
    monkeypatch.setattr(recorder.Recorder, "profile_at", (5, 4))
    monkeypatch.setattr(recorder.Recorder, "profiles", tmp_path / "profiles")
    profiled = recorder.train(config)
    assert [(one.rank, one.step, one.steps) for one in profiled.profiled] == [(rank, 5, 4) for rank in range(devices)]
    assert profiled.losses() == plain.losses()


def step_memory(config: RunConfig, **changes: object) -> StepMemory:
    told = recorder.train(msgspec.structs.replace(config, **changes), stop_at=2).step_memory
    assert told is not None
    return told


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", recorder.JAX_BACKENDS)
def test_a_compiled_step_tells_what_it_takes_of_each_device(backend: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, model="net", gradient_clip=0.0)
    one, double, split = (
        step_memory(config, global_batch_size=examples, devices=devices)
        for examples, devices in ((64, 2), (128, 2), (128, 4))
    )
    estimate = estimate_memory(config)
    kept = estimate.parameters + estimate.optimizer
    for found in (one, double, split):
        # Counters and losses beside the state. On the CPU none of it is updated in place.
        assert kept <= found.outputs < kept + 4096
        assert found.aliased == 0
        assert found.arguments > kept
        assert found.total == found.arguments + found.outputs + found.temporary
    # What is computed of a batch follows the examples of a device, not those of all.
    assert one.temporary < 0.9 * double.temporary
    assert split.temporary == pytest.approx(one.temporary, rel=0.1)


@pytest.mark.parametrize("backend", mostly_by_hand(recorder.JAX_BACKENDS, "jax-sharding"))
def test_of_frozen_weights_a_step_has_no_optimizer_state(backend: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, optimizer="adam", global_batch_size=32)
    config = msgspec.structs.replace(
        config, freeze="fc1/*, out/kernel" if backend == "keras-jax" else "fc1.*, out.kernel"
    )
    estimate = estimate_memory(config)
    assert estimate.optimizer < estimate.parameters
    kept = estimate.parameters + estimate.optimizer
    assert kept <= step_memory(config).outputs < kept + 4096
