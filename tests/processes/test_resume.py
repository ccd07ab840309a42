"""Runs that stop, fail or are lost, and go on from a checkpoint: as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest

from tests.kit.harness import Gate, Watched, launched, resumed
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, CheckpointRequested, RunEnded, StopRequested
from tuiapp.trainers.contract.manifest import list_checkpoints, read_checkpoint
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise

CONFIG = RunConfig(model="net", platform="cpu", devices=2, global_batch_size=144, epochs=6, checkpoint_every=1)
"""9 steps an epoch, 54 in all; slow enough for every step to be on record by itself. Its Dropout draws numbers."""

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]

Hold: TypeAlias = Callable[[int, int], Gate]
"""Makes a gate for a rank at a step."""


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The same run without interruption."""
    place = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as environment:
        # It is made before the home that each test has of its own.
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            environment.setenv(name, str(place))
        with launched(CONFIG, place / "runs") as run:
            assert run.end().status == "completed"
    return run.run


def curves(run: RunDir) -> tuple[dict[tuple[int, int], float | None], dict[int, tuple[float | None, float]]]:
    """Losses by rank and step, and loss and accuracy by evaluated step: what was done anew counts."""
    watched = Watched(run)
    losses: dict[tuple[int, int], float | None] = {}
    for event in watched.reports():
        assert event.counts is None
        for step, loss in enumerate(event.values[LOSS], start=event.first_step):
            losses[event.rank, step] = loss
    return losses, {event.step: (event.loss, event.accuracy) for event in watched.evaluations()}


def same(run: RunDir, straight: RunDir, steps: int = 54) -> None:
    """All that the two runs have come to is the same, to the last bit: curves, weights, optimizer, random state."""
    losses, evaluations = curves(run)
    wanted_losses, wanted_evaluations = curves(straight)
    assert len(losses) == 2 * steps
    assert losses == {key: loss for key, loss in wanted_losses.items() if key[1] <= steps}
    assert evaluations == {step: result for step, result in wanted_evaluations.items() if step <= steps}
    last = [list_checkpoints(each.checkpoints)[0][0].manifest for each in (run, straight)]
    if steps == 54:
        assert last[0].files == last[1].files


def tuiapp(run: RunDir, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command about runs where this one lies."""
    command = [*TUIAPP, *arguments, "--runs-dir", str(run.path.parent)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def while_held(run: Watched, gate: Gate, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that asks something of a run that waits at its gate; that is opened once the run has heard it."""
    command = [*TUIAPP, *arguments, "--runs-dir", str(run.run.path.parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        run.wait(StopRequested if arguments[0] == "stop" else CheckpointRequested)
        gate.open()
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def stop_while_held(run: Watched, gate: Gate) -> RunEnded:
    """Have a run stop that waits at its gate."""
    sidecars.send_command(run.run.commands, "stop")
    run.wait(StopRequested)
    gate.open()
    return run.end()


@pytest.mark.nightly
def test_stopped_and_resumed_and_again_from_the_one_before_a_damaged_checkpoint(
    runs_dir: Path, straight: RunDir, gate: Hold
) -> None:
    held = gate(0, 20)
    with launched(CONFIG, runs_dir) as run:
        run.at_step(13)
        name, launched_at = run.run.run_id, run.run.config.stat().st_mtime_ns
        stopped = while_held(run, held, "stop", name)
        end = run.end(1)
        assert (stopped.returncode, end.status) == (0, "stopped")
        assert f"checkpoint step-{end.summary.steps:08}" in stopped.stderr
        assert f"to resume: tuiapp run --resume {run.run.path}" in stopped.stderr
        run.wait_gone()
        held = gate(0, 40)
        with resumed(run.run) as again:
            assert (again.started.attempt, again.started.resumed_from) == (2, end.summary.steps)
            again.at_step(31)
            assert stop_while_held(again, held).status == "stopped"
            again.wait_gone()
        newest, before, *_ = list_checkpoints(run.run.checkpoints)[0]
        weights = newest.path / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[len(data) // 2] ^= 1
        weights.write_bytes(data)
        done = tuiapp(run.run, "run", "--resume", name, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout.splitlines()[-1])
        assert (result["run"], result["status"], result["steps"]) == (name, "completed", 54)
        said = f"{weights} is damaged: its checksum does not match; resuming from {before.path.name}"
        first, _, third, *_ = done.stderr.splitlines()
        assert first == f"tuiapp: {said}"
        assert f"resumed from step {before.manifest.step}, attempt 3" in third
        assert "STOPPED" not in done.stderr
        assert [alert.text for alert in run.alerts()] == [said]
        assert run.run.config.stat().st_mtime_ns == launched_at
    same(run.run, straight)


@pytest.mark.nightly
def test_kill_9_of_a_rank_and_then_of_the_supervisor(runs_dir: Path, straight: RunDir, gate: Hold) -> None:
    gate(0, 20)
    with launched(CONFIG, runs_dir) as run:
        run.at_step(13)
        os.kill(run.pid(1), signal.SIGKILL)
        assert run.end().status == "failed"
        run.wait_gone()
        newest = list_checkpoints(run.run.checkpoints)[0][0].manifest.step
        assert newest % 9 == 0
        held = gate(0, 40)
        with resumed(run.run) as again:
            assert again.started.resumed_from == newest
            again.at_step(31)
            assert again.steps_of(0)[0] == newest + 1
            os.kill(again.started.pid, signal.SIGKILL)
            again.wait_gone()
            assert summarise(run.run).status == "lost"
        held.open()
        # Asked of the attempt that is gone: the next one must not obey it.
        sidecars.send_command(run.run.commands, "stop")
        with resumed(run.run) as again:
            assert (again.started.resumed_from or 0) >= 27
            assert again.end().status == "completed"
            assert again.of(StopRequested) == []
    same(run.run, straight)


@pytest.mark.nightly
def test_a_checkpoint_on_request_changes_nothing(runs_dir: Path, straight: RunDir, gate: Hold) -> None:
    held = gate(0, 20)
    with launched(CONFIG, runs_dir) as run:
        run.at_step(11)
        done = while_held(run, held, "checkpoint", "latest")
        assert done.returncode == 0, done.stderr
        saved = read_checkpoint(Path(done.stdout.strip()))
        saved.verify()
        assert saved.manifest.step >= 11
        event = run.wait(Checkpoint, lambda event: event.step == saved.manifest.step)
        assert event.name in done.stderr
        # What it holds is the state after that very step, of both ranks.
        assert run.end().status == "completed"
        run.wait_gone()  # its journal ends before its process does: until then it is a live run
        assert tuiapp(run.run, "checkpoint", "latest").returncode == 2
    same(run.run, straight)


@pytest.mark.nightly
def test_a_second_stop_skips_the_checkpoint(runs_dir: Path) -> None:
    with launched(msgspec.structs.replace(CONFIG, epochs=1000, checkpoint_every=0), runs_dir) as run:
        run.at_step(1)
        # It does not answer the question for the last step: the run cannot stop in order.
        os.kill(run.pid(1), signal.SIGSTOP)
        sidecars.send_command(run.run.commands, "stop")
        assert run.wait(StopRequested).save
        stop = tuiapp(run.run, "stop", "latest", "--now")
        assert run.end(1).reason.endswith("at once")
        assert "no new checkpoint" in stop.stderr
        assert list_checkpoints(run.run.checkpoints) == ([], [])


@pytest.mark.usefixtures("no_framework")
def test_what_was_asked_of_the_attempt_before_is_not_asked_of_this_one(runs_dir: Path) -> None:
    config = RunConfig(model="mlp", platform="cpu", devices=1, max_steps=5)
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        run.wait_gone()
    sidecars.send_command(run.run.commands, "stop")
    with resumed(run.run, msgspec.structs.replace(config, max_steps=10)) as again:
        ended = again.wait(RunEnded, lambda event: event.summary.steps > 5 or event.status != "completed")
        assert (ended.status, ended.summary.steps) == ("completed", 10)
