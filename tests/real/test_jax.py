"""Runs of the JAX backends: one process that owns all devices and tells of each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import launched
from tests.kit.recorder import JAX_BACKENDS
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Phase, RankSample, RankStarted, Sharding
from tuiapp.trainers.contract.metrics import STEP_TIME
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState

MLP = RunConfig(model="mlp", platform="cpu", devices=2, epochs=100_000, checkpoint_every=1)

EACH = pytest.mark.parametrize("backend", JAX_BACKENDS)
ONE_AT_LEAST = pytest.mark.parametrize(
    "backend", [JAX_BACKENDS[0], *(pytest.param(each, marks=pytest.mark.by_hand) for each in JAX_BACKENDS[1:])]
)
"""A process ends in the same way with all of them: the others' tests are slow ones."""


def _on(backend: str, config: RunConfig = MLP, **changes: object) -> RunConfig:
    return msgspec.structs.replace(config, backend=backend, **changes)


@ONE_AT_LEAST
def test_a_run_from_first_to_last_event(runs_dir: Path, backend: str) -> None:
    config = _on(backend, epochs=4)
    with launched(config, runs_dir) as run:
        end = run.end()
        run.wait_gone()
        assert end.status == "completed", end
        assert run.steps_of(0) == run.steps_of(1) == list(range(1, make_plan(config).total_steps + 1))
        assert end.summary.test_accuracy is not None
        assert end.summary.test_accuracy >= 0.9
        first = run.reports()[0].time - run.started.time
        speed = f"{end.summary.examples_per_second:.0f} examples/s"
        print(f"\n{backend}: accuracy {end.summary.test_accuracy:.1%}, {speed}, first steps after {first:.1f} s")

        # Two devices, one process.
        started = run.of(RankStarted)
        assert [(one.rank, one.device) for one in started] == [(0, "cpu:0"), (1, "cpu:1")]
        assert len({one.pid for one in started}) == 1
        assert {sample.rank for sample in run.of(RankSample)} <= {0}
        assert [path.name for path in run.run.rank(0).parent.iterdir()] == ["0"]
        phases = [phase.phase for phase in run.of(Phase) if phase.rank == 1]
        assert phases == ["preparing", "compiling", *["training", "evaluating", "checkpointing"] * 4, "done"]
        losses = {rank: run.losses(rank) for rank in (0, 1)}
        assert losses[0] != losses[1]
        assert {len(event.shards) for event in run.of(Sharding)} == {2}
        # Nothing but silence from JAX: no warning of the cache, of pmap or of a deprecated name.
        assert (run.run.rank(0) / "stderr.log").read_text() == ""

        state = RunState()
        for event in run.events:
            apply(state, event)
        assert sorted(state.ranks) == [0, 1]
        assert all(rank.step == make_plan(config).total_steps for rank in state.ranks.values())
        assert state.devices() == [(0, "cpu:0"), (1, "cpu:1")]
        assert any("2 devices in one process" in entry.text for entry in state.log)


@pytest.mark.by_hand
@EACH
def test_a_stop_on_request(runs_dir: Path, backend: str) -> None:
    with launched(_on(backend), runs_dir) as run:
        run.at_step(20)
        sidecars.send_command(run.run.commands, "stop")
        end = run.end()
        assert end.status == "stopped"
        assert not end.reason.endswith("at once")
        assert run.steps_of(0) == run.steps_of(1) == list(range(1, end.summary.steps + 1))
        run.wait_gone()


@ONE_AT_LEAST
@pytest.mark.by_hand
def test_a_step_s_time_is_its_own(runs_dir: Path, backend: str) -> None:
    """Devices may compute several steps in one call: told after it, one would be long and the others take no time."""
    config = _on(backend, model="net", global_batch_size=180, epochs=3)
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        times = [seconds or 0.0 for report in run.reports(0) for seconds in report.values[STEP_TIME]]
    # No machine makes such a step in so little.
    assert min(times) > 0.001, times
