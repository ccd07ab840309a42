"""A script of one's own on two nodes: what its ranks report there arrives as on one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.kit.cluster import machines
from tests.kit.harness import Watched, launched, watching
from tests.kit.nodes import address_of, agent, without
from tests.kit.own_scripts import curve, the_run
from tests.kit.variants import mostly_nightly
from tests.kit.waiting import wait_until
from tests.processes.test_script import of_script
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import Checkpoint, Facts, LogLine, Metrics, Phase, RankFailed, RankStarted
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.nightly

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]

ALL_REDUCE = """
import os, torch, torch.distributed as dist, tuiapp
dist.init_process_group("gloo")
rank = dist.get_rank()
tuiapp.init(config={"lr": 0.5}, total_steps=20)
for step in range(1, 21):
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    tuiapp.log({"loss": 10.0 * rank + step, "total": total}, step=step)
tuiapp.run.checkpoint(f"model-{rank}.pt")
print("local", os.environ["LOCAL_RANK"], "of", os.environ["LOCAL_WORLD_SIZE"])
dist.destroy_process_group()
"""


@pytest.mark.by_hand
@pytest.mark.parametrize("shared", mostly_nightly([True, False], False), ids=["shared", "not shared"])
def test_what_a_script_logs_on_every_node_arrives(tmp_path: Path, runs_dir: Path, shared: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(ALL_REDUCE)
    settings = (
        "devices=4",
        "platform=cpu",
        "launcher=join",
        "nodes=2",
        "network=eth0",
        f"working_directory={tmp_path}",
    )
    keys = [word for setting in settings for word in ("--set", setting)]
    command = [*TUIAPP, "run", str(script), "--runs-dir", str(runs_dir), "--detach", "--json", *keys]
    with machines() as two:
        done = subprocess.run(two.command(0, *command), capture_output=True, text=True, check=True, timeout=60)
        with watching(RunDir(Path(json.loads(done.stdout)["directory"]))) as run:
            host, port = address_of(run)
            join = [*TUIAPP, "join", f"{host}:{port}"]
            if not shared:
                join = without(runs_dir, *join)
            environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "node-b")}
            with subprocess.Popen(two.command(1, *join), env=environment, stdin=subprocess.PIPE, text=True) as joined:
                try:
                    joined.communicate(run.run.secret.read_text(), timeout=120)
                finally:
                    joined.kill()
            end = run.end()
            assert (end.status, end.summary.steps) == ("completed", 20)
            for rank in range(4):
                assert curve(run, rank, "loss") == {step: 10.0 * rank + step for step in range(1, 21)}
                assert set(curve(run, rank, "total").values()) == {6.0}
            for events in (run.of(Metrics), run.of(RankStarted), run.of(Phase)):
                assert {(event.rank, event.node) for event in events} == {(0, 0), (1, 0), (2, 1), (3, 1)}
            assert {(event.name, event.node) for event in run.of(Checkpoint)} == {
                (f"model-{rank}.pt", rank // 2) for rank in range(4)
            }
            assert {event.node for event in run.of(Facts) if event.config == {"lr": 0.5}} == {0, 1}
            said = {(line.rank, line.text) for line in run.of(LogLine) if line.rank is not None}
            assert said >= {(rank, f"local {rank % 2} of 2") for rank in range(4)}
            run.wait_gone()


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
        mailbox.send(run.run.commands, "checkpoint")
        for rank in (0, 1):
            run.wait(Checkpoint, lambda event, rank=rank: event.name == f"rank-{rank}")  # type: ignore[misc]
        assert len({event.step for event in run.of(Checkpoint)}) == 1
        mailbox.send(run.run.commands, "stop")
        assert run.end().status == "stopped"
        assert len({max(curve(run, rank, "loss")) for rank in (0, 1)}) == 1


def test_further_runs_of_a_script_are_those_of_all_nodes(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import tuiapp
        for trial in range(2):
            with tuiapp.init() as run:
                while not run.should_stop():
                    run.log({"loss": run.rank})
                    if trial == 0 and run.step == 20:
                        break
        """,
    )
    with on_two_nodes(config, runs_dir, None) as run:
        further = the_run(runs_dir, 2)
        for rank in (0, 1):
            further.wait(Metrics, lambda event, rank=rank: event.rank == rank)  # type: ignore[misc]
        mailbox.send(run.run.commands, "stop")
        assert further.end().status == "stopped"
        assert len({max(curve(further, rank, "loss")) for rank in (0, 1)}) == 1
        assert {(event.rank, event.node) for event in further.of(RankStarted)} == {(0, 0), (1, 1)}
        assert run.end().status == "stopped"
        further.wait_gone()


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


def test_an_exception_there_is_told_with_its_traceback(tmp_path: Path, runs_dir: Path) -> None:
    config = of_script(
        tmp_path,
        """
        import time, tuiapp
        run = tuiapp.init()
        tuiapp.log({"loss": 1.0}, step=1)
        if run.rank == 1:
            raise ValueError("only on the second node")
        time.sleep(600)
        """,
    )
    with on_two_nodes(config, runs_dir, tmp_path / "node-b") as run:
        assert run.end().reason.startswith("rank 1 on node 1 failed at step 1: ValueError: only on")
        failed = run.wait(RankFailed)
        assert (failed.node, failed.step) == (1, 1)
        assert failed.traceback.startswith("Traceback")
        wait_until(lambda: not run.processes())


def test_what_a_node_lacks_is_named(tmp_path: Path, runs_dir: Path) -> None:
    work = runs_dir / "work"
    work.mkdir(parents=True)
    config = of_script(tmp_path, "import time\ntime.sleep(600)", working_directory=str(work))
    with on_two_nodes(config, runs_dir, tmp_path / "node-b") as run:
        assert run.end().reason == f"node 1 (node-b) cannot start its ranks: No such file or directory: {work}"
