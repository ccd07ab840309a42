"""Scripts that report by `tuiapp.log`: what tests start, and read from the runs that record them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.kit.harness import Watched
from tuiapp.library.find import list_runs
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, Metrics

Start = Callable[..., subprocess.Popen[str]]

DEADLINE_S = 60.0

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--log-dir", "torchrun")
"""Without a directory it makes `torchelastic_…` in that for temporary files, and leaves it there."""


def the_run(runs_dir: Path, count: int = 1) -> Watched:
    """The newest run, once there are `count`."""
    deadline = time.monotonic() + DEADLINE_S
    while len(runs := [run for run in list_runs(runs_dir) if run.journal.exists()]) < count:
        assert time.monotonic() < deadline, f"{len(runs)} runs of {count}"
        time.sleep(0.02)
    assert len(runs) == count
    return Watched(runs[0])


def curve(watched: Watched, rank: int, name: str) -> dict[int, float | None]:
    """Step → value of a metric's entries."""
    found: dict[int, float | None] = {}
    for event in watched.of(Metrics):
        if event.rank == rank and name in event.values:
            step = event.first_step - 1
            for count, value in zip(event.counts or [1] * len(event.values[name]), event.values[name], strict=True):
                step += count
                found[step] = value
    return found


def ends_well(process: subprocess.Popen[str]) -> str:
    """Waits for a script; returns its standard error."""
    _, error = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, error
    return error


def saved_then_stopped(watched: Watched, exists: Callable[[Path], bool] = Path.exists) -> tuple[int, int]:
    """Asks a run that has no end for a checkpoint, then to stop; returns the steps at which it has saved."""
    watched.wait(Metrics, lambda event: event.last_step >= 5)
    sidecars.send_command(watched.run.commands, "checkpoint")
    first = watched.wait(Checkpoint)
    watched.wait(Metrics, lambda event: event.last_step > first.step)
    sidecars.send_command(watched.run.commands, "stop")
    end = watched.end()
    assert end.status == "stopped", end
    saves = watched.of(Checkpoint)
    assert len(saves) == 2, saves
    assert all(exists(Path(save.name)) and save.bytes > 0 for save in saves)
    assert 0 < saves[0].step < saves[1].step
    return saves[0].step, saves[1].step
