"""A disk that is full when a checkpoint is saved, under a whole `tuiapp run`: the ones before it are as they were."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.kit.disks import Disk, disk_with_quota, small_disk
from tests.kit.harness import MLP, Watched, launched, watching
from tests.processes.test_full_disk import goes_on, wait_for
from tuiapp.library.commands import send_command
from tuiapp.library.find import list_runs
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import Alert, Checkpoint
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.nightly

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
SETTINGS = {"model": "mlp", "platform": "cpu", "devices": 2, "epochs": 20_000, "checkpoint_every": 0, "eval_every": 0}

TOO_LITTLE_BYTES = 500_000
"""Enough for a while of journal, not for a checkpoint of about 950,000."""


@pytest.fixture(params=["full disk", "quota"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    make = {"full disk": small_disk, "quota": disk_with_quota}[request.param]
    with make(tmp_path / "disk") as made:
        yield made


@contextmanager
def headless(runs_dir: Path, said: Path) -> Iterator[tuple[Watched, subprocess.Popen[bytes]]]:
    """`tuiapp run`, which tells what happens in a file elsewhere."""
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    command = [*TUIAPP, "run", "quickstart", *settings, "--runs-dir", str(runs_dir), "--json"]
    with said.open("wb") as stream, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream) as process:
        wait_for(lambda: list_runs(runs_dir))
        try:
            with watching(list_runs(runs_dir)[0]) as run:
                yield run, process
        finally:
            process.kill()


def tuiapp(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TUIAPP, *words], capture_output=True, text=True, timeout=170, check=False)


def content(run: RunDir) -> dict[str, bytes]:
    """All that stands in the checkpoints' directory, hidden things included."""
    paths = [path for path in run.checkpoints.rglob("*") if path.is_file()]
    return {str(path.relative_to(run.checkpoints)): path.read_bytes() for path in paths}


def refusals(run: Watched) -> list[Alert]:
    return [alert for alert in run.of(Alert) if alert.kind == "checkpoint"]


def save(run: Watched, outcome: Callable[[], int]) -> None:
    """Ask for a checkpoint and wait for one more outcome of a kind."""
    before = outcome()
    mailbox.send(run.run.commands, "checkpoint")
    wait_for(lambda: outcome() > before)


@pytest.mark.by_hand
def test_a_whole_run(disk: Disk, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with headless(disk.path, said) as (run, process):
        run.at_step(20)
        save(run, lambda: len(run.of(Checkpoint)))
        kept = content(run.run)

        # Full for a checkpoint; the journal has room, so that it is told at once.
        disk.fill(TOO_LITTLE_BYTES)
        save(run, lambda: len(refusals(run)))
        words = refusals(run)[0].text
        assert f"was not saved: {disk.why}; earlier checkpoints are intact" in words
        assert content(run.run) == kept
        assert [path.name for path in run.run.checkpoints.iterdir()] == [run.of(Checkpoint)[0].name]
        wait_for(lambda: words in said.read_text())
        assert words in tuiapp("show", str(run.run.path)).stdout
        run.at_step(run.steps_of(0)[-1] + 20)
        refused = tuiapp("checkpoint", str(run.run.path))
        assert refused.returncode == 1
        assert f"was not saved: {disk.why}" in refused.stderr

        # Full for the journal as well.
        disk.fill(0)
        wait_for(lambda: run.run.lock_note().trouble)
        # Where not even a name can be written it is asked by signal.
        if instead := send_command(run.run, "checkpoint"):
            assert f"({disk.why}): sent SIGUSR1 to its supervisor" in instead
            print(f"\n{instead}")
        goes_on(run)
        wait_for(lambda: f"{disk.why}. Training continues" in said.read_text())
        assert f"{disk.why}. Training continues" in tuiapp("show", str(run.run.path)).stdout
        assert content(run.run) == kept
        last = run.steps_of(0)[-1]
        disk.make_room()
        run.at_step(last + 20)
        save(run, lambda: len(run.of(Checkpoint)))
        kept = content(run.run)
        saved = run.of(Checkpoint)[-1]

        # Full when the run is to stop: it does, without.
        disk.fill(TOO_LITTLE_BYTES)
        stopped = tuiapp("stop", str(run.run.path))
        assert (stopped.returncode, process.wait(60)) == (0, 3)
        assert f"was not saved: {disk.why}" in stopped.stderr
        assert f"to resume: tuiapp run --resume {run.run.path}" in said.read_text()
        assert content(run.run) == kept
        steps = run.steps_of(0)
        assert steps == list(range(1, len(steps) + 1))
        assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))
        run.wait_gone()
        disk.make_room()
        goes_on_from(run.run, saved.step)
    print(f"\n{disk.why}: {len(refusals(run))} checkpoints refused, {len(steps):,} steps of each rank, none missing")


def test_stopped_while_the_disk_takes_nothing(disk: Disk, fake: Callable[..., None]) -> None:
    fake()
    config = msgspec.structs.replace(MLP, checkpoint_every=0, eval_every=0, epochs=20_000)
    with launched(config, disk.path) as run:
        run.at_step(20)
        disk.fill(0)
        wait_for(lambda: run.run.lock_note().trouble)
        command = [*TUIAPP, "stop", str(run.run.path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stopping:
            wait_for(lambda: run.run.lock_note().over)
            assert run.run.is_live()
            disk.make_room()
            said = stopping.communicate(timeout=100)[1]
        print(f"\n{said}")
        assert stopping.returncode == 0
        assert f"{disk.why}. Training continues" in said
        assert "stopped: " in said
        assert run.end().status == "stopped"
        run.wait_gone(30)


def goes_on_from(run: RunDir, step: int) -> None:
    """Resumed from the checkpoint that was kept, to its end."""
    began = time.monotonic()
    done = tuiapp("run", "--resume", str(run.path), "--set", f"max_steps={step + 50}", "--json")
    assert done.returncode == 0, done.stderr
    assert f"resumed from step {step:,}" in done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["status"], result["steps"]) == ("completed", step + 50)
    assert (run.export / "model.safetensors").stat().st_size > 0
    print(f"\nresumed from step {step:,} in {time.monotonic() - began:.1f} s")
