"""A real run's live mirror: it has what the journal has, and whatever happens to it the run does not notice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.kit.harness import MLP, launched
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract.events import Alert

pytestmark = pytest.mark.nightly


@pytest.mark.usefixtures("no_framework")
def test_it_is_killed_and_has_all_steps(runs_dir: Path, tmp_path: Path) -> None:
    config = msgspec.structs.replace(MLP, mirror=f"tensorboard:{tmp_path / 'board'}", checkpoint_every=0)
    with launched(config, runs_dir) as run:
        run.at_step(50)
        board = tmp_path / "board" / run.run.run_id
        wait_until(lambda: (board / "rank1").exists())
        (process,) = run.processes("tuiapp.trainers.run.mirror")
        process.send_signal(signal.SIGKILL)
        alert = run.wait(Alert, lambda alert: alert.kind == "mirror")
        assert "the mirror was killed by SIGKILL" in alert.text
        assert "supervisor.log" in alert.text
        wait_until(lambda: bool(run.processes("tuiapp.trainers.run.mirror")))
        run.at_step(run.last_step(0) + 50)
        (run.run.commands / "stop").touch()
        os.kill(run.started.pid, signal.SIGTERM)
        assert run.end().status == "stopped"
        run.wait_gone()
        losses = {rank: _losses(board / f"rank{rank}" if rank else board) for rank in (0, 1)}
        for rank, found in losses.items():
            wanted = {
                step: value
                for event in run.reports(rank)
                for (step, _), value in zip(event.places(), event.values["loss"], strict=True)
            }
            assert found == pytest.approx(wanted)


def _losses(directory: Path) -> dict[int, float]:
    found = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    found.Reload()
    return {each.step: each.value for each in found.Scalars("loss")} if "loss" in found.Tags()["scalars"] else {}
