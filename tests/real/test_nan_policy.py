"""What nan_policy asks for is done, also where one rank alone has a loss that is not finite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.harness import launched
from tests.kit.npz import make_arrays, write_npz
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Alert, Checkpoint, StopRequested
from tuiapp.trainers.contract.metrics import LOSS

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


def test_flagged_within_the_step_and_the_policy_carried_out(runs_dir: Path, tmp_path: Path) -> None:
    arrays = make_arrays((13, 11, 1), train=240)
    # One example of one rank's part of one batch: finite, but what is computed from it is not.
    arrays["x_train"][17] = 3e38
    data = write_npz(tmp_path / "one.npz", arrays)
    config = RunConfig(
        model="mlp", dataset=data, platform="cpu", devices=2, global_batch_size=24, epochs=1000, nan_policy="stop"
    )
    with launched(config, runs_dir) as run:
        end = run.end()
        # The gradients' mean carries it to the others in the next step; they tell of it as well, if they get that far.
        alerts = [alert for alert in run.of(Alert) if alert.kind == "nan" and alert.step is not None]
        alert = min(alerts, key=lambda one: one.step or 0)
        first = {
            rank: min(
                (
                    event.first_step + place
                    for event in run.reports(rank)
                    for place, loss in enumerate(event.values[LOSS])
                    if loss is None
                ),
                default=end.summary.steps + 1,
            )
            for rank in range(2)
        }
        assert alert.rank is not None
        assert alert.step is not None
        assert alert.step == first[alert.rank] == min(first.values())
        assert first[1 - alert.rank] > alert.step
        assert run.wait(StopRequested).by == "nan_policy"
        assert (end.status, "not finite" in end.reason) == ("stopped", True)
        told = run.wait(StopRequested)
        after = end.summary.steps - alert.step
        waited = told.mono - alert.mono
        print(f"\nNaN on rank {alert.rank} at step {alert.step}: flagged there; asked to stop {waited:.3f} s later,")
        print(f"stopped {after} steps later; the other rank's first was at step {first[1 - alert.rank]}")
        run.wait_gone()
