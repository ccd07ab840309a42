"""A run's place in the queue: a file in its directory, while it waits and until it has ended.

What the user's session had when the run was queued (environment variables, working directory) is kept in it: the run
starts in another one, hours later. It is as private as the run's directory, and goes when the run will not start again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuiapp.trainers.config.files import read_limited, write_atomically
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs

MAX_FILE_BYTES = 1 << 20


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What the queue knows of a run."""

    order: float
    """The lower ones are first, of those with the same priority."""
    priority: int = 0
    """The higher ones are first."""
    held: bool = False
    """Whether it stays until it is released."""
    retry: int = 0
    """How many more times it is started after a failure that looks transient."""
    tried: int = 0
    """How often it has been started."""
    not_before: float = 0.0
    """Unix time of its next start at the earliest."""
    exclusive: bool = False
    """Whether no other run of this directory may run on the machine at the same time."""
    parallel: int = 0
    """How many of the queue's runs Slurm may have at a time; 0 for any number."""
    platform: str = "cpu"
    """As of the placed configuration."""
    devices: int = 1
    """What was asked for, before GPUs were chosen; 0 for all that are idle."""
    device_ids: tuple[str, ...] = ()
    """As `devices`: empty for any."""
    per_device_batch_size: int = 0
    """What was asked for: it makes the global batch of the devices that are chosen."""
    on_slurm: bool = False
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    directory: str = "/"

    @property
    def rank(self) -> tuple[int, float]:
        """What the queue is sorted by, before the run's name."""
        return -self.priority, self.order


class Entry(NamedTuple):
    run: RunDir
    waiting: Waiting

    @property
    def rank(self) -> tuple[tuple[int, float], str]:
        """What the queue is sorted by."""
        return self.waiting.rank, self.run.run_id


def read_waiting(file: Path) -> Waiting | None:
    """Reads `waits.json` or `kept.json`; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(read_limited(file, MAX_FILE_BYTES), type=Waiting)
    except (OSError, ValueError, RecursionError):
        return None


def write_waiting(file: Path, waiting: Waiting) -> None:
    """Writes it, readable by nobody else; raises OSError."""
    write_atomically(file, msgspec.json.format(msgspec.json.encode(waiting)) + b"\n")


def find_waiting(runs_dir: Path) -> list[Entry]:
    """Returns the queue: the runs of a directory that wait in it, the next one first."""
    found = [Entry(run, waiting) for run in _with(runs_dir, RunDir.waits.name) if (waiting := read_waiting(run.waits))]
    return sorted(found, key=lambda one: one.rank)


def find_kept(runs_dir: Path) -> list[Entry]:
    """Returns the runs that the queue has started and whose end nobody has noted yet."""
    return [Entry(run, waiting) for run in _with(runs_dir, RunDir.kept.name) if (waiting := read_waiting(run.kept))]


def _with(runs_dir: Path, name: str) -> Iterator[RunDir]:
    return (run for run in find_run_dirs(runs_dir) if os.path.exists(f"{run.path}/{name}"))
