"""Line 35: ranks train on after their supervisor and reaper, and the curve has no gap, or every view names it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import Watched, launched, resumed
from tests.kit.whole_curve import what_lacks
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import AnyEvent, Checkpoint, Metrics, RunEnded
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import summarise

CONFIG = RunConfig(model="mlp", platform="cpu", devices=2, global_batch_size=48, epochs=100, seed=7, checkpoint_every=1)
"""29 steps an epoch."""

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


def tuiapp(run: RunDir, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*TUIAPP, *arguments, "--runs-dir", str(run.path.parent)]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def all_events(run: RunDir) -> list[AnyEvent]:
    watched = Watched(run)
    watched.of(Metrics)
    return watched.events


def kill_both(run: Watched) -> None:
    """The reaper first, then the supervisor: the ranks are on their own for 5 s."""
    for reaper in run.processes("tuiapp.trainers.run.reaper"):
        reaper.kill()
    os.kill(run.started.pid, signal.SIGKILL)


def newest(run: RunDir) -> int:
    return list_checkpoints(run.checkpoints)[0][0].manifest.step


def outlived(run: Watched) -> tuple[int, int]:
    """Wait for the ranks' end: the last step on record, and the newest checkpoint on the disk."""
    run.wait_gone()
    return run.last_step(0), newest(run.run)


def resume_to(run: Watched, steps: int) -> RunEnded:
    """Resume up to a step, and see that the curve is whole."""
    with resumed(run.run, msgspec.structs.replace(CONFIG, max_steps=steps)) as again:
        end = again.end()
        again.wait_gone()
        assert (end.status, end.summary.steps) == ("completed", steps)
    assert what_lacks(all_events(run.run), read_config(run.run)) == []
    return end


@pytest.mark.nightly
def test_supervisor_and_reaper_killed_and_resumed(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.01)
    with launched(CONFIG, runs_dir) as run:
        run.wait(Checkpoint, lambda event: event.step >= 58)
        run.at_step(58)
        kill_both(run)
        last, saved = outlived(run)
        assert saved > last, "the ranks have not outlived their supervisor"
        assert summarise(run.run).status == "lost"
        both = min(run.last_step(0), run.last_step(1))
        # That the journal covers the newest of them the supervisor may not have passed on before it was killed.
        kept = {one.manifest.step for one in list_checkpoints(run.run.checkpoints)[0]}
        covered = max(event.step for event in run.of(Checkpoint) if event.step <= both and event.step in kept)
        shown = tuiapp(run.run, "show", "latest").stdout
        (line,) = [line for line in shown.splitlines() if line.endswith("resume point")]
        assert line.split()[0] == f"step-{covered:08}"
        assert json.loads(tuiapp(run.run, "show", "latest", "--json").stdout)["resume_step"] == covered
        state = RunState()
        for event in run.events:
            apply(state, event)
        state.mark_lost()
        assert state.resume_step == covered
        resume_to(run, saved + 40)
        print(f"\njournal up to {last}, ranks up to {saved} or more: resumed from {covered}, nothing is missing")


@pytest.mark.nightly
def test_a_run_whose_ranks_made_all_their_steps_meanwhile_ends_completed(
    runs_dir: Path, fake: Callable[..., None]
) -> None:
    fake(step=0.01)
    config = msgspec.structs.replace(CONFIG, epochs=6)
    with launched(config, runs_dir) as run:
        run.wait(Checkpoint, lambda event: event.step >= 58)
        kill_both(run)
        last, saved = outlived(run)
        assert last < saved == make_plan(config).total_steps
        done = tuiapp(run.run, "run", "--resume", "latest", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["status"] == "completed"
        assert what_lacks(all_events(run.run), config) == []
