"""Runs in a real Slurm of two nodes: queued, preempted, requeued, cancelled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kit.cluster import cancel_all, jobs, slurm, start_now
from tests.kit.harness import MLP, Watched, launched, wait_dead, watching
from tests.kit.terminal import Terminal
from tests.kit.waiting import wait_until
from tuiapp.library.liveness import LivenessProbe
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, Metrics, Queued, RunEnded, RunStarted, StopRequested
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.process_identity import machine
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.launch import LaunchError, launch, resume
from tuiapp.trainers.state.messages import describe_queued
from tuiapp.trainers.state.summary import summarise

pytestmark = pytest.mark.nightly

IN_JOB = msgspec.structs.replace(MLP, launcher="slurm", nodes=2, network="lo", slurm="--exclusive -t 10")
PATIENCE_S = 120.0
WATCHER = "tuiapp.trainers.run.slurm_queue"


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with slurm() as environment:
        yield environment


@pytest.fixture
def in_cluster(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster[name])
    yield cluster
    # A job that a failed test leaves would keep the nodes from the next.
    cancel_all(cluster)


@pytest.fixture
def blocker(in_cluster: dict[str, str]) -> Iterator[str]:
    """A job that has all nodes."""
    command = ["sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600"]
    job = subprocess.run(command, env=in_cluster, capture_output=True, text=True, check=True).stdout.strip()
    yield job
    subprocess.run(["scancel", job], env=in_cluster, check=False)


def _listed(runs_dir: Path) -> list[str]:
    """The status of each run of a directory, as a list of runs shows it."""
    index = RunIndex(runs_dir)
    list(index.scan())
    return [info.status for info in index.infos]


@pytest.mark.by_hand
def test_a_run_within_an_allocation(in_cluster: dict[str, str], runs_dir: Path, tmp_path: Path) -> None:
    """Whose steps start late, as on a busy node: nothing has the run until then."""
    late = tmp_path / "late" / "srun"
    late.parent.mkdir()
    late.write_text(f'#!/bin/sh\nsleep 5\nexec {shutil.which("srun")} "$@"\n')
    late.chmod(0o755)
    environment = {**in_cluster, "PATH": f"{late.parent}:{in_cluster['PATH']}"}
    settings = ["launcher=slurm", "nodes=2", "network=lo", "platform=cpu", "devices=2", "max_steps=8"]
    program = [sys.executable, "-P", "-m", "tuiapp", "--runs-dir", str(runs_dir), "run", "mlp"]
    command = [*program, *(word for one in settings for word in ("--set", one))]
    subprocess.run(["salloc", "--nodes=2", "--exclusive", *command], env=environment, check=True, timeout=PATIENCE_S)
    (run,) = runs_dir.iterdir()
    assert summarise(RunDir(run)).status == "completed"


def test_a_job_whose_agents_do_not_start_ends(in_cluster: dict[str, str], runs_dir: Path, no_framework: None) -> None:
    # srun refuses it, as it does what a job has too little of.
    config = msgspec.structs.replace(IN_JOB, slurm="--exclusive --export=ALL,SLURM_GPUS_PER_NODE=9")
    with launched(config, runs_dir) as run:
        end = run.end(PATIENCE_S)
        assert end.status == "failed"
        assert end.reason.startswith("the agents could not be started by srun (exit code 1)")
        run.wait_gone()


@pytest.mark.parametrize(("opening", "watched"), [("runs", True), ("attach", False)])
def test_a_queued_run_is_cancelled_by_a_key(
    in_cluster: dict[str, str], runs_dir: Path, blocker: str, opening: str, watched: bool
) -> None:
    with launched(IN_JOB, runs_dir) as run:
        waits = run.wait(Queued)
        if not watched:
            _kill_watcher(run)
        command = [sys.executable, "-P", "-m", "tuiapp", "--runs-dir", str(runs_dir), "attach"]
        with Terminal(command) as terminal:
            terminal.wait(f"Slurm job {waits.job} is queued")
            terminal.wait("torch-ddp · mlp · digits · 2 CPU ranks on 2 nodes")
            if opening == "runs":
                terminal.press("g")
                terminal.wait("◌ queued +.*torch-ddp +mlp")
            terminal.press("s")
            terminal.wait("Its Slurm job is cancelled")
            terminal.press("enter")
            terminal.wait("■ (STOPPED|stopped)")
            terminal.wait("its Slurm job .* was cancelled before")
        assert run.end().status == "stopped"
        assert jobs(in_cluster) == [blocker]
        run.wait_gone()


def test_a_queued_run_that_nothing_watches_stays_queued(
    in_cluster: dict[str, str], runs_dir: Path, blocker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with launched(IN_JOB, runs_dir) as run:
        waits = run.wait(Queued)
        # So that other machines see that it is watched.
        assert run.run.lock_note().machine == machine()
        _kill_watcher(run)
        # Seen from a machine without Slurm's commands.
        assert summarise(run.run).reason == describe_queued(waits)
        with monkeypatch.context() as without:
            without.setenv("PATH", "")
            assert _listed(runs_dir) == ["queued"]
        assert run.processes(WATCHER) == []
        with pytest.raises(LaunchError, match="it has not ended"):
            resume(run.run)
        # Any view has it watched again, once.
        with LivenessProbe(run.run) as pulse:
            wait_until(lambda: pulse.is_alive() and run.run.liveness() is Liveness.HELD and run.processes(WATCHER))
            assert _listed(runs_dir) == ["queued"]
            assert len(run.processes(WATCHER)) == 1
            sidecars.send_command(run.run.commands, "stop")
            assert run.end().status == "stopped"
            run.wait_gone()
            assert not pulse.is_alive()
        assert jobs(in_cluster) == [blocker]


def _kill_watcher(run: Watched) -> None:
    """As a machine does that restarts, or one that ends what users leave running on it."""
    watchers = run.processes(WATCHER)
    assert len(watchers) == 1
    watchers[0].kill()
    wait_dead(watchers)


def test_a_requeued_run_goes_on_by_itself(
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
        assert (first.status, first.reason) == ("stopped", f"by Slurm, after step {first.summary.steps:,}")
        # Every process of the job gets SIGTERM: that is said once.
        assert [event.by for event in run.of(StopRequested)] == ["Slurm"]
        assert run.alerts() == []
        again = _starts_again(run, job, in_cluster, after=first)
        subprocess.run(["scancel", job], env=in_cluster, check=True)
        last = run.wait(RunEnded, lambda event: event.seq > again.seq, PATIENCE_S)
        assert last.status == "stopped"
        # scancel saves, too.
        assert run.of(Checkpoint)[-1].step == last.summary.steps
        run.wait_gone()
        assert summarise(run.run).status == "stopped"


def _starts_again(run: Watched, job: str, cluster: dict[str, str], after: RunEnded) -> RunStarted:
    """Waits until a run is back in Slurm's queue, and starts it from there, which Slurm does after two minutes."""
    waits = run.wait(Queued, lambda event: event.seq > after.seq, PATIENCE_S)
    assert (waits.job, waits.reason) == (job, "BeginTime")
    wait_until(lambda: summarise(run.run).status == "queued")
    assert run.of(Checkpoint)[-1].step == after.summary.steps
    start_now(job, cluster)
    again = run.wait(RunStarted, lambda event: event.seq > waits.seq, PATIENCE_S)
    assert again.resumed_from == after.summary.steps
    return again


def test_a_preempted_run_is_followed_to_its_end(
    in_cluster: dict[str, str], runs_dir: Path, fake: Callable[..., None], tmp_path: Path
) -> None:
    fake(step=0.1)
    settings = ["platform=cpu", "devices=2", "nodes=2", "network=lo", "requeue=true", "epochs=100000", "max_steps=150"]
    command = ["run", "quickstart", "--slurm", "--exclusive", *(word for one in settings for word in ("--set", one))]
    followed = subprocess.Popen(
        [sys.executable, "-P", "-m", "tuiapp", "--runs-dir", str(runs_dir), *command], stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: find_run_dirs(runs_dir), PATIENCE_S)
    with watching(find_run_dirs(runs_dir)[0]) as run:
        run.wait(RunStarted, seconds=PATIENCE_S)
        run.at_step(5)
        (job,) = jobs(in_cluster)
        # Its steps get SIGTERM, as much before the end as the partition grants; its batch script does not.
        urgent = ["sbatch", "-p", "urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 5"]
        subprocess.run(urgent, env=in_cluster, check=True)
        _starts_again(run, job, in_cluster, after=run.end(PATIENCE_S))
        ended = run.wait(RunEnded, lambda event: event.status == "completed", PATIENCE_S)
        assert ended.summary.steps == 150
        assert run.steps_of(0) == list(range(1, 151))
        _, said = followed.communicate(timeout=60)
        assert followed.returncode == 0, said
        times = [
            said.index(word) for word in ("stop requested · Slurm", "is queued · BeginTime", "attempt 2", "COMPLETED")
        ]
        assert times == sorted(times)
        run.wait_gone()


@pytest.mark.parametrize("saved", [True, False])
def test_a_run_that_loses_a_node_goes_on_by_itself(
    in_cluster: dict[str, str], runs_dir: Path, fake: Callable[..., None], saved: bool
) -> None:
    fake(step=0.02)
    config = msgspec.structs.replace(IN_JOB, requeue=True, node_grace_s=5.0)
    with launched(config, runs_dir) as run:
        run.wait(RunStarted, seconds=PATIENCE_S)
        run.at_step(5)
        if saved:
            sidecars.send_command(run.run.commands, "checkpoint")
            run.wait(Checkpoint)
        (agent,) = [one for one in run.processes("tuiapp.trainers.run.node") if one.name() != "srun"]
        for process in (agent, *agent.children(recursive=True)):
            process.kill()
        end = run.end()
        assert end.status == "failed"
        assert "out of reach" in end.reason
        # It may have come to the end of an epoch meanwhile.
        step = run.of(Checkpoint)[-1].step if saved else 0
        (job,) = jobs(in_cluster)
        waits = run.wait(Queued, lambda event: event.seq > end.seq, PATIENCE_S)
        assert (waits.job, waits.reason) == (job, "BeginTime")
        wait_until(lambda: summarise(run.run).status == "queued")
        start_now(job, in_cluster)
        again = run.wait(RunStarted, lambda event: event.seq > waits.seq, PATIENCE_S)
        assert (again.attempt, again.resumed_from) == (2, step)
        run.wait(Metrics, lambda event: event.seq > again.seq)
        sidecars.send_command(run.run.commands, "stop")
        assert run.wait(RunEnded, lambda event: event.seq > again.seq).status == "stopped"
        run.wait_gone()
        wait_until(lambda: not jobs(in_cluster))


def test_what_slurm_refuses_is_said(in_cluster: dict[str, str], runs_dir: Path) -> None:
    config = msgspec.structs.replace(IN_JOB, slurm="--partition=nowhere")
    with pytest.raises(LaunchError, match=r"Slurm takes no job: .*: nowhere; .* Invalid partition name"):
        launch(config, runs_dir)
    assert not list(runs_dir.iterdir())
