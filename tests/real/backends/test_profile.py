"""Steps that are profiled compute what they would have computed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit import recorder
from tests.kit.variants import mostly_by_hand
from tests.real.backends.test_accumulate import CONFIG
from tuiapp.trainers.config.memory import estimate_memory
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import StepMemory

pytestmark = pytest.mark.nightly


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
