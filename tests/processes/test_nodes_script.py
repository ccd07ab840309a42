"""A script of one's own on two nodes: what its ranks report there arrives as on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import Watched, launched
from tests.kit.nodes import agent
from tests.kit.own_scripts import curve
from tests.processes.test_script import of_script
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, LogLine, Metrics

pytestmark = pytest.mark.nightly


@contextmanager
def on_two_nodes(config: RunConfig, runs_dir: Path, home: Path | None) -> Iterator[Watched]:
    config = msgspec.structs.replace(config, devices=2, launcher="join", nodes=2, network="lo")
    with launched(config, runs_dir) as run, agent(run, home=home):
        yield run


def test_all_nodes_stop_at_the_step_that_they_agree_on(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import time, tuiapp
        run = tuiapp.init()
        step = 0
        while not run.should_stop():
            step += 1
            if run.should_checkpoint():
                run.checkpoint(f"rank-{run.rank}", step=step)
            tuiapp.log({"loss": 1 / step}, step=step)
            time.sleep(0.01 * (1 + run.rank))
        """,
    )
    with on_two_nodes(config, runs_dir, tmp_path / "node-b") as run:
        for rank in (0, 1):
            run.wait(Metrics, lambda event, rank=rank: event.rank == rank and event.last_step > 5)  # type: ignore[misc]
        sidecars.send_command(run.run.commands, "checkpoint")
        for rank in (0, 1):
            run.wait(Checkpoint, lambda event, rank=rank: event.name == f"rank-{rank}")  # type: ignore[misc]
        assert len({event.step for event in run.of(Checkpoint)}) == 1
        sidecars.send_command(run.run.commands, "stop")
        assert run.end().status == "stopped"
        assert len({max(curve(run, rank, "loss")) for rank in (0, 1)}) == 1


def test_metrics_in_the_output_and_in_event_files_of_every_node(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import os
        from torch.utils.tensorboard import SummaryWriter
        rank = int(os.environ["RANK"])
        with SummaryWriter("logs") as writer:
            for step in range(1, 4):
                writer.add_scalar("lr", step + 10 * rank, step)
                if rank == 1:  # as Megatron does, the last one
                    print(f"step {step} loss {step / 2}")
        """,
        output_pattern=r"step (?P<step>\d+) loss (?P<loss>\S+)",
        tensorboard_dir=str(tmp_path / "logs"),
    )
    with on_two_nodes(config, runs_dir, tmp_path / "node-b") as run:
        assert run.end().status == "completed"
        assert curve(run, 1, "loss") == {1: 0.5, 2: 1.0, 3: 1.5}
        for rank in (0, 1):
            assert curve(run, rank, "lr") == {step: step + 10 * rank for step in range(1, 4)}
        assert not [line for line in run.of(LogLine) if "found no number" in line.text or "no scalar" in line.text]
