"""Jobs of several nodes that somebody else has started: one run where the nodes meet, else one each."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.kit.cluster import machines
from tests.kit.harness import Watched
from tests.kit.own_scripts import DEADLINE_S, Start, curve, ends_well, the_run
from tests.kit.waiting import wait_until
from tuiapp.library.find import list_runs
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, Facts, LogLine, Metrics, Node, RankFailed, RankStarted
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise
from tuiapp.view.run_list import choose

UNTIL_STOPPED = """
    import time, tuiapp
    run = tuiapp.init(name="wide", total_steps=1_000_000)
    while not run.should_stop():
        run.log({"loss": 1 + run.rank})
        time.sleep(0.01)
"""

JOB = {
    "SLURM_JOB_ID": "18", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3", "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "TUIAPP_NETWORK": "lo",
}  # fmt: skip
"""What Slurm tells the tasks of a job of two nodes, here both on this machine."""

Ranks = list[subprocess.Popen[str]]


def on_node(start: Start, node: int, text: str = UNTIL_STOPPED, **variables: str) -> Ranks:
    """Starts both ranks of a node."""
    return [
        start(text, SLURM_PROCID=str(2 * node + local), SLURM_NODEID=str(node), SLURM_LOCALID=str(local), **JOB,
              **variables)
        for local in range(2)
    ]  # fmt: skip


def reports(run: Watched, *ranks: int, beyond: int = 0) -> None:
    """Waits until each of these ranks has reported a step beyond one."""
    for rank in ranks:
        run.wait(Metrics, lambda event, rank=rank: event.rank == rank and event.last_step > beyond)  # type: ignore[misc]


def agent_of(run: Watched) -> psutil.Process:
    """The agent of the second node."""
    (agent,) = run.processes("tuiapp.trainers.run.node")
    return agent


@pytest.mark.nightly
def test_the_nodes_of_a_job_are_one_run_and_stop_together(start: Start, runs_dir: Path) -> None:
    first = on_node(start, 0)
    run = the_run(runs_dir)
    reports(run, 0, 1)
    second = on_node(start, 1)
    reports(run, 0, 1, 2, 3, beyond=5)
    assert (run.started.nodes, run.started.world_size, run.started.part) == (2, 4, None)
    assert {(event.rank, event.node) for event in run.of(RankStarted)} == {(0, 0), (1, 0), (2, 1), (3, 1)}
    assert {facts.name for facts in run.of(Facts) if facts.name} == {"wide-3"}
    sidecars.send_command(run.run.commands, "stop")
    assert run.end().status == "stopped"
    said = "".join(ends_well(process) for process in first + second)
    assert len({max(curve(run, rank, "loss")) for rank in range(4)}) == 1
    assert said.count("to watch this run") == 1
    assert "of their own" not in said
    run.wait_gone()
    assert list_runs(runs_dir) == [run.run]


@pytest.mark.nightly
def test_nodes_that_cannot_meet_are_runs_of_their_own(start: Start, runs_dir: Path) -> None:
    first = [start(UNTIL_STOPPED, SLURM_PROCID=str(rank), SLURM_NODEID="0", SLURM_LOCALID=str(rank),
                   **JOB | {"TUIAPP_NETWORK": "none"}) for rank in range(2)]  # fmt: skip
    run = the_run(runs_dir)
    cause = "a stop of this run reaches the ranks alone that report to it: its recorder cannot listen: 'none' is"
    run.wait(LogLine, lambda line: line.text.startswith(cause))
    second = on_node(start, 1)
    part = the_run(runs_dir, 2)
    reports(run, 0, 1)
    reports(part, 2, 3)
    assert (part.started.world_size, part.started.job, part.started.part) == (2, "17_3", (1, 2))
    assert {facts.name for facts in part.of(Facts) if facts.name} == {"wide-3-node1"}
    state = RunState()
    for event in part.events:
        apply(state, event)
    assert sorted(state.ranks) == [2, 3]
    wait_until(lambda: choose([summarise(part.run)], f"17_3 {part.started.host}"))
    apart = "the ranks of node 1 are a run of their own, which a stop of the others does not reach: the recorder of "
    apart += run.run.run_id
    part.wait(LogLine, lambda line: line.text.startswith(apart))
    sidecars.send_command(part.run.commands, "stop")
    assert part.end().status == "stopped"
    said = "".join(ends_well(process) for process in second)
    assert said.count(apart) == said.count("the ranks of node 1 of 2, a run of their own") == 1
    assert all(process.poll() is None for process in first)
    sidecars.send_command(run.run.commands, "stop")
    assert run.end().status == "stopped"
    assert sum(ends_well(process).count(cause) for process in first) == 1


@pytest.mark.nightly
def test_without_its_recorder_a_job_trains_on_and_the_next_meets_anew(
    start: Start, runs_dir: Path, tmp_path: Path
) -> None:
    text = f"""
        import os, time, tuiapp
        run = tuiapp.init()
        while not os.path.exists({str(tmp_path / "go")!r}):
            run.log({{"loss": 1}})
            time.sleep(0.01)
    """
    ranks = on_node(start, 0, text) + on_node(start, 1, text)
    run = the_run(runs_dir)
    reports(run, 0, 1, 2, 3)
    psutil.Process(run.started.pid).kill()
    wait_until(lambda: not run.processes())
    assert all(process.poll() is None for process in ranks)
    (tmp_path / "go").touch()
    for process in ranks:
        assert "training continues, nothing more is reported" in ends_well(process)
    (tmp_path / "go").unlink()
    # A job of the same name.
    ranks = on_node(start, 0, text) + on_node(start, 1, text)
    reports(the_run(runs_dir, 2), 0, 1, 2, 3)
    (tmp_path / "go").touch()
    for process in ranks:
        ends_well(process)
    assert the_run(runs_dir, 2).end().status == "completed"


@pytest.mark.nightly
def test_a_node_that_is_lost_is_named_and_the_others_train_on(start: Start, runs_dir: Path) -> None:
    ranks = on_node(start, 0) + on_node(start, 1)
    run = the_run(runs_dir)
    reports(run, 0, 1, 2, 3)
    agent_of(run).kill()
    run.wait(Alert, lambda alert: alert.kind == "node" and alert.text.startswith("node 1 ("))
    run.wait(Node, lambda node: node.state == "lost", 90)
    for rank in (2, 3):
        run.wait(RankFailed, lambda failed, rank=rank: failed.lost and failed.rank == rank)  # type: ignore[misc]
    assert all(process.poll() is None for process in ranks)
    reports(run, 0, 1, beyond=run.last_step(0))
    sidecars.send_command(run.run.commands, "stop")
    assert run.end().reason.startswith("node 1 (")
    for process in ranks[:2]:
        ends_well(process)


ALL_REDUCE = """
import time, torch, torch.distributed as dist, tuiapp
dist.init_process_group("gloo")
run = tuiapp.init()
while not run.should_stop():
    total = torch.tensor(float(run.rank))
    dist.all_reduce(total)
    run.log({"total": total})
    time.sleep(0.01)
dist.destroy_process_group()
"""


def stops_as_one(runs_dir: Path, hosts: set[str], nodes: int = 2) -> Watched:
    """Stops a job of four ranks that is one run: all before the same step."""
    run = the_run(runs_dir)
    reports(run, 0, 1, 2, 3, beyond=5)
    assert {run.started.host, *(node.host for node in run.of(Node))} == hosts
    assert {(event.rank, event.node) for event in run.of(RankStarted)} == {(0, 0), (1, 0), (2, 1), (3, 1)}
    assert (run.started.nodes, run.started.world_size) == (nodes, 4)
    stop = [sys.executable, "-P", "-m", "tuiapp", "--runs-dir", str(runs_dir), "stop", "latest"]
    assert subprocess.run(stop, check=False, timeout=DEADLINE_S).returncode == 0
    assert run.end().status == "stopped"
    assert len({max(curve(run, rank, "total")) for rank in range(4)}) == 1
    assert list_runs(runs_dir) == [run.run]
    run.wait_gone()
    return run


@pytest.mark.by_hand
def test_a_job_of_torchrun_on_two_machines(runs_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ALL_REDUCE)
    environment = {**os.environ, "TUIAPP_RUNS_DIR": str(runs_dir), "PYTHONPATH": os.getcwd()}
    # The names of these machines lead nowhere.
    environment["GLOO_SOCKET_IFNAME"] = "eth0"
    with machines() as two, ExitStack() as ended:
        jobs = []
        for node in range(2):
            words = ("--nnodes=2", "--nproc-per-node=2", f"--node-rank={node}", f"--master-addr={two.address(0)}")
            module = (sys.executable, "-m", "torch.distributed.run", "--log-dir", str(tmp_path / f"torchrun{node}"))
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"host-{node}", *module, *words]
            job = subprocess.Popen(two.command(node, *command, str(script)), env=environment)
            ended.callback(job.wait)
            ended.callback(job.terminate)
            jobs.append(job)
        stops_as_one(runs_dir, {"host-0", "host-1"})
        assert [job.wait(DEADLINE_S) for job in jobs] == [0, 0]
