"""Runs in a real Slurm of two nodes: queued, preempted, requeued, cancelled."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.processes.cluster import jobs, slurm, state_of
from tests.processes.harness import MLP, launched
from tests.waiting import wait_until
from trainers.config.run_config import RunConfig
from trainers.contract import mailbox
from trainers.contract.events import Checkpoint, Queued, RunEnded, RunStarted
from trainers.contract.summary import summarise
from trainers.launch import LaunchError, launch

IN_JOB = msgspec.structs.replace(MLP, launcher="slurm", nodes=2, network="lo", slurm="--exclusive -t 10")
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with slurm() as environment:
        yield environment


@pytest.fixture
def in_cluster(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster[name])
    return cluster


@pytest.fixture
def blocker(in_cluster: dict[str, str]) -> Iterator[str]:
    """A job that has all nodes."""
    command = ["sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600"]
    job = subprocess.run(command, env=in_cluster, capture_output=True, text=True, check=True).stdout.strip()
    yield job
    subprocess.run(["scancel", job], env=in_cluster, check=False)


def test_a_run_on_two_nodes(in_cluster: dict[str, str], runs_dir: Path) -> None:
    config = msgspec.structs.replace(IN_JOB, epochs=1, max_steps=8)
    with launched(config, runs_dir) as run:
        assert run.end(PATIENCE_S).status == "completed"
        assert run.steps_of(1) == list(range(1, 9))
        run.wait_gone()


def test_a_queued_run_says_why_it_waits_and_is_cancelled(
    in_cluster: dict[str, str], runs_dir: Path, blocker: str
) -> None:
    with launched(IN_JOB, runs_dir) as run:
        assert run.wait(Queued).reason in ("Resources", "Priority")
        assert summarise(run.run).status == "queued"
        mailbox.send(run.run.commands, "stop")
        assert run.end().status == "stopped"
        run.wait_gone()
        assert jobs(in_cluster) == [blocker]


@pytest.mark.slow
def test_a_preempted_run_goes_on_by_itself(
    in_cluster: dict[str, str], runs_dir: Path, fake: Callable[..., None]
) -> None:
    fake()
    config = msgspec.structs.replace(IN_JOB, requeue=True)
    with launched(config, runs_dir) as run:
        run.wait(RunStarted, seconds=PATIENCE_S)
        run.at_step(5)
        (job,) = jobs(in_cluster)
        subprocess.run(["scontrol", "requeue", job], env=in_cluster, check=True)
        first = run.end(PATIENCE_S)
        assert first.status == "stopped"
        saved = run.of(Checkpoint)[-1].step
        # Slurm waits two minutes before it starts a requeued job again.
        wait_until(lambda: state_of(job, in_cluster) == "PENDING", PATIENCE_S)
        subprocess.run(["scontrol", "update", f"jobid={job}", "StartTime=now"], env=in_cluster, check=True)
        again = run.wait(RunStarted, lambda event: event.attempt == 2, PATIENCE_S)
        assert again.resumed_from == saved
        subprocess.run(["scancel", job], env=in_cluster, check=True)
        last = run.wait(RunEnded, lambda event: event.seq > again.seq, PATIENCE_S)
        assert last.status == "stopped"
        # scancel saves, too.
        assert run.of(Checkpoint)[-1].step == last.summary.steps
        run.wait_gone()


def test_what_slurm_refuses_is_said(in_cluster: dict[str, str], runs_dir: Path) -> None:
    config = msgspec.structs.replace(IN_JOB, slurm="--partition=nowhere")
    with pytest.raises(LaunchError, match=r"Slurm takes no job: Batch job submission failed: Invalid partition name"):
        launch(config, runs_dir)
    assert not list(runs_dir.iterdir())


def test_a_machine_without_slurm_is_named(runs_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config: RunConfig = IN_JOB
    with pytest.raises(LaunchError, match="sbatch is not on this machine"):
        launch(config, runs_dir)
