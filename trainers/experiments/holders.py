"""Which devices the live runs of a directory have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.settings import Settings
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.contract.sidecars import read_waiting
from tuiapp.trainers.experiments.placing import HeldDevices
from tuiapp.trainers.state.status import read_config


def live_runs(runs_dir: Path) -> list[RunDir]:
    """Returns the runs of a directory that are live on this machine."""
    return [run for run in find_run_dirs(runs_dir) if run.liveness() in (Liveness.HELD, Liveness.JOB)]


def held_by(run: RunDir) -> HeldDevices:
    """Returns what a live run has; a slot of the CPU if its configuration cannot be read."""
    kept = read_waiting(run.kept)
    exclusive = kept is not None and kept.exclusive
    try:
        config = read_config(run)
    except (ConfigError, OSError):
        return HeldDevices(run.run_id, exclusive=exclusive)
    # The UUIDs of ranks that somebody else started are not known.
    gpus = () if config.platform != "cuda" else config.device_ids or ("elsewhere",)
    return HeldDevices(run.run_id, gpus, exclusive=exclusive, on_slurm=config.launcher == "slurm")


def cpu_slots(settings: Settings) -> int:
    """Returns how many runs without GPUs the queue lets run at a time."""
    return settings.queue_cpu_slots or max(1, len(os.sched_getaffinity(0)) // 4)


def all_held(runs_dir: Path) -> dict[RunDir, HeldDevices]:
    """Returns what each live run of a directory has on this machine."""
    return {run: held_by(run) for run in live_runs(runs_dir)}


def conflicting_runs(placed: RunConfig, runs: Mapping[RunDir, HeldDevices], settings: Settings) -> list[RunDir]:
    """Returns those of the runs that have devices of a placed configuration; of the CPU, all that take its slots."""
    if placed.launcher != "local":
        return []
    if placed.platform == "cuda":
        return [run for run, held in runs.items() if set(held.gpus) & set(placed.device_ids)]
    on_cpu = [run for run, held in runs.items() if not held.gpus and not held.on_slurm]
    return on_cpu if len(on_cpu) >= cpu_slots(settings) else []
