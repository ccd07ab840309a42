"""What nan_policy asks for is done, on a backend with a process per device and on one with a single process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.harness import launched
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Alert, Checkpoint, StopRequested

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(("backend", "policy"), [("torch-ddp", "checkpoint-and-stop"), ("jax-sharding", "warn")])
def test_a_loss_that_is_not_finite(runs_dir: Path, backend: str, policy: str) -> None:
    config = RunConfig(
        backend=backend, model="mlp", platform="cpu", devices=2, epochs=1000, optimizer="sgd",
        learning_rate=100.0, weight_decay=10.0, nan_policy=policy, max_steps=400 if policy == "warn" else 0,
        checkpoint_every=0, eval_every=0,
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        end = run.end()
        alert = next(one for one in run.of(Alert) if one.kind == "nan")
        assert alert.step is not None
        requests = run.of(StopRequested)
        if policy == "warn":
            assert (end.status, requests) == ("completed", [])
        else:
            assert end.status == "stopped"
            assert "a loss was not finite" in end.reason
            assert requests[0].by == "nan_policy"
        saved = [one.step for one in run.of(Checkpoint)]
        assert saved == ([end.summary.steps] if policy == "checkpoint-and-stop" else [])
        run.wait_gone()
        print(f"\n{backend}, {policy}: not finite at {alert.step}, {end.status} after step {end.summary.steps}")
