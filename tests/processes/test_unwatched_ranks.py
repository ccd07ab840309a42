"""Line 35: ranks train on after their supervisor and reaper, and the curve has no gap, or every view names it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import Watched, launched, resumed
from tests.kit.reported import evaluations
from tests.kit.variants import mostly_by_hand
from tests.kit.whole_curve import missing_steps, what_lacks
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Alert, AnyEvent, Checkpoint, Metrics, RunEnded
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import summarise

CONFIG = RunConfig(model="mlp", platform="cpu", devices=2, global_batch_size=48, epochs=100, seed=7)
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
def test_supervisor_suspended_and_then_killed(runs_dir: Path, fake: Callable[..., None]) -> None:
    """It was suspended for more checkpoints than are kept: the last that it recorded is still there."""
    fake(step=0.005)
    with launched(CONFIG, runs_dir) as run:
        run.wait(Checkpoint, lambda event: event.step >= 58)
        os.kill(run.started.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while newest(run.run) < run.last_step(0) + 5 * 29:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(run.started.pid, signal.SIGKILL)
        last, saved = outlived(run)
        assert saved > last
        assert len(list_checkpoints(run.run.checkpoints)[0]) <= 5  # the newest 3, the best, the one on record
        resume_to(run, saved + 40)


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


@pytest.mark.by_hand
def test_nothing_on_record_leaves_a_gap_that_every_view_names(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.02)
    with launched(CONFIG, runs_dir) as run:
        run.wait(Metrics)
        assert run.of(Checkpoint) == []
        kill_both(run)
        _, saved = outlived(run)
        reached = min(run.last_step(rank) for rank in (0, 1))
        steps = saved + 20
        done = tuiapp(run.run, "run", "--resume", "latest", "--set", f"max_steps={steps}")
        assert done.returncode == 0, done.stderr
        # The first of all: the gap is as small as it can be.
        missing = missing_steps(all_events(run.run))
        assert missing == list(range(reached + 1, 30))
        words = f"steps {missing[0]} to 29 missing"
        assert f"{words} from the journal, with their evaluations and checkpoints; resuming from step-0" in done.stderr
        shown = tuiapp(run.run, "show", "latest")
        assert f"gap         {words}" in shown.stdout
        assert json.loads(tuiapp(run.run, "show", "latest", "--json").stdout)["missing_steps"] == [[missing[0], 29]]
        assert words in tuiapp(run.run, "export", "latest").stderr
        state = RunState()
        for event in all_events(run.run):
            apply(state, event)
        found = headline(state)
        assert found is not None
        assert words in found.text
        assert (state.status, found.severity) == ("completed", "warning")


@pytest.mark.nightly
def test_a_journal_cut_by_hand(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.002)
    # Without an early evaluation, whose checkpoint would be kept as the best.
    config = msgspec.structs.replace(CONFIG, epochs=8, eval_every=0)
    with launched(config, runs_dir) as run:
        run.end()
        run.wait_gone()
        kept = [one.manifest.step for one in list_checkpoints(run.run.checkpoints)[0]]
        lines = run.run.journal.read_bytes().splitlines(keepends=True)
        at = next(place for place, line in enumerate(lines) if b'"name":"step-00000087"' in line)
        run.run.journal.write_bytes(b"".join(lines[:at]))
        reached = min(Watched(run.run).last_step(rank) for rank in (0, 1))
        with resumed(run.run, config) as again:
            assert again.started.resumed_from == min(kept)
            assert again.end().status == "completed"
            again.wait_gone()
            assert again.of(Alert) == []
        assert missing_steps(all_events(run.run)) == list(range(reached + 1, min(kept) + 1))


FURTHER = ("torch-dp", "jax-sharding", "jax-pmap", "keras-jax", "keras-torch", "mxnet-gluon")
ALL = [
    ("torch-ddp", 0),
    *(pytest.param(backend, steps, marks=pytest.mark.by_hand) for backend in FURTHER for steps in (0, 40)),
]
"""Backends, and the steps of runs that end within an epoch."""


@pytest.mark.parametrize(("backend", "max_steps"), ALL)
@pytest.mark.by_hand
def test_only_the_end_is_missing(runs_dir: Path, backend: str, max_steps: int) -> None:
    """Lost after the last checkpoint was recorded: resumed it makes no step, exports its model, and ends completed."""
    devices = 1 if backend == "torch-dp" else 2
    config = msgspec.structs.replace(CONFIG, backend=backend, devices=devices, epochs=2, max_steps=max_steps)
    with launched(config, runs_dir) as run:
        straight = run.end().summary
        run.wait_gone()
        (exported,) = run.run.export.iterdir()
        model = exported.read_bytes()
        exported.unlink()
        lines = run.run.journal.read_bytes().splitlines(keepends=True)
        # The other rank's last report may come after rank 0's checkpoint.
        recorded = (b'{"type":"checkpoint",', b'{"type":"metrics",')
        last = max(place for place, line in enumerate(lines) if line.startswith(recorded))
        run.run.journal.write_bytes(b"".join(lines[: last + 1]))
        assert summarise(run.run).status == "lost"
        done = tuiapp(run.run, "run", "--resume", "latest", "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout.splitlines()[-1])
        assert (result["status"], result["steps"]) == ("completed", make_plan(config).total_steps)
        assert (result["loss"], result["test_accuracy"]) == (straight.loss, straight.test_accuracy)
        assert what_lacks(all_events(run.run), config) == []
        if exported.suffix == ".safetensors":
            assert exported.read_bytes() == model
        assert exported.stat().st_size > 1000
        # Now it is over.
        assert tuiapp(run.run, "run", "--resume", "latest").returncode == 2


@pytest.mark.nightly
@pytest.mark.parametrize("backend", mostly_by_hand(["torch-ddp", "jax-sharding"], "torch-ddp"))
def test_the_curve_is_that_of_a_run_never_interrupted(runs_dir: Path, backend: str) -> None:
    """To the last bit, whatever the ranks did on their own."""
    config = msgspec.structs.replace(CONFIG, backend=backend, epochs=1000, max_steps=3000)
    with launched(config, runs_dir) as run:
        run.wait(Checkpoint, lambda event: event.step >= 232)
        kill_both(run)
        last, saved = outlived(run)
        assert saved > last
        total = saved + 29
        with resumed(run.run, msgspec.structs.replace(config, max_steps=total)) as again:
            assert again.end().status == "completed"
            again.wait_gone()
    events = all_events(run.run)
    assert what_lacks(events, read_config(run.run)) == []
    with launched(read_config(run.run), runs_dir) as straight:
        straight.end()
    # Training losses of steps as short as these share entries of the journal, by the clock; all else is exact.
    found = {one.step: (one.loss, one.accuracy) for one in evaluations(events)}
    assert found == {one.step: (one.loss, one.accuracy) for one in straight.evaluations()}
    manifests = [list_checkpoints(each.run.checkpoints)[0][0].manifest for each in (run, straight)]
    assert manifests[0].step == total
    assert manifests[0].files == manifests[1].files
    print(f"\n{backend}: journal up to {last}, ranks up to {saved}, {total} steps: equal to the last bit")
