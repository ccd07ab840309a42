"""Every backend trains every model of images, in real processes on two CPU devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.harness import launched
from tests.kit.model_tasks import IMAGE_MODELS
from tuiapp.trainers.config.catalog import BACKENDS, backends_with
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Replicas, Sharding

pytestmark = [pytest.mark.by_hand, pytest.mark.timeout(600)]

STEPS = {"mlp": 58, "net": 116, "convnet": 116, "resnet18": 16}


@pytest.mark.parametrize("model", IMAGE_MODELS)
@pytest.mark.parametrize("backend", [name for name, backend in BACKENDS.items() if backend.builtin])
def test_the_loss_falls(backend: str, model: str, runs_dir: Path) -> None:
    # DataParallel has one device on the CPU.
    devices = 1 if backend == "torch-dp" else 2
    config = RunConfig(
        backend=backend,
        model=model,
        platform="cpu",
        devices=devices,
        epochs=4,
        max_steps=STEPS[model],
        checkpoint_every=0,
    )
    with launched(config, runs_dir) as run:
        end = run.end(500)
        assert end.status == "completed", end
        losses = run.losses(0)
        assert len(losses) == STEPS[model]
        quarter = len(losses) // 4
        first, last = (sum(part) / quarter for part in (losses[:quarter], losses[-quarter:]))
        accuracy = run.evaluations()[-1].accuracy
        print(f"\n{backend}, {model}: loss {first:.3f} to {last:.3f}, test accuracy {accuracy:.1%}")
        assert last < 0.8 * first
        if model == "net":
            assert accuracy >= 0.95
        assert not run.alerts()
        # After the last step at least.
        assert bool(run.of(Replicas)) == (backend in backends_with("check_replicas"))
        assert not any(one.differing for one in run.of(Replicas))
        # What is told of the arrays covers all devices.
        for array in {event.array for event in run.of(Sharding)}:
            shards = [shard for event in run.of(Sharding) if event.array == array for shard in event.shards]
            assert {shard.rank for shard in shards} == set(range(devices)), array
