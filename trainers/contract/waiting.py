"""A run's place in the queue: a file in its directory, while it waits and until it has ended.

What the user's session had when the run was queued (environment variables, working directory) is kept in it: the run
starts in another one, hours later. It is as private as the run's directory, and goes when the run will not start again.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from tuiapp.trainers.config.files import read_limited, write_atomically
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs

T = TypeVar("T")

MAX_FILE_BYTES = 8 << 20
"""Linux lets a process have an environment of 6 MiB at most: execve(2)."""


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
    """The platform of the placed configuration."""
    devices: int = 1
    """What was asked for, before GPUs were chosen; 0 for all that are idle."""
    device_ids: tuple[str, ...] = ()
    """The GPUs that the run must have; empty for any."""
    per_device_batch_size: int = 0
    """What was asked for: it makes the global batch of the devices that are chosen."""
    on_slurm: bool = False
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    directory: str = "/"

    @property
    def rank(self) -> tuple[int, float]:
        """What the queue is sorted by, before the run's name."""
        return -self.priority, self.order

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.order)


class Entry(NamedTuple):
    run: RunDir
    waiting: Waiting

    @property
    def rank(self) -> tuple[tuple[int, float], str]:
        """What the queue is sorted by."""
        return self.waiting.rank, self.run.run_id


DAMAGED = Waiting(order=math.inf, held=True)
"""Stands for one that cannot be read: it is the last in the queue, and can be cancelled alone."""
UNREAD = Waiting(order=math.inf, retry=1, not_before=math.inf)
"""Stands for one that cannot be read now, as without a free file descriptor: it is read again later."""


def encode_exact(message: Any) -> bytes:
    """Encodes a message for `decode_exact`, which returns its text as it was, bytes that are no UTF-8 included."""
    return json.dumps(msgspec.to_builtins(message), indent=2).encode() + b"\n"


def decode_exact(text: str, type_: type[T]) -> T:
    """Raises ValueError, RecursionError."""
    return msgspec.convert(json.loads(text), type_)


def read_waiting(file: Path) -> Waiting | None:
    """Reads `waits.json` or `kept.json`; None if it is missing, else `DAMAGED` or `UNREAD` if it cannot be read."""
    try:
        return decode_exact(read_limited(file, MAX_FILE_BYTES), Waiting)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A link, or another special file.
        return DAMAGED if error.errno in (errno.ELOOP, errno.EINVAL) else UNREAD
    except (ValueError, RecursionError):
        return DAMAGED


def write_waiting(file: Path, waiting: Waiting) -> None:
    """Writes it, readable by nobody else; raises OSError, also where an environment is too large."""
    text = encode_exact(waiting)
    if len(text) > MAX_FILE_BYTES:
        size = f"an environment of {len(text) >> 20} MiB, of which {MAX_FILE_BYTES >> 20} are kept"
        raise OSError(errno.E2BIG, size, str(file))
    write_atomically(file, text)


def note_started(run: RunDir) -> None:
    """Takes a run that has started out of the queue; what its session had stays only if it may start again.

    Raises OSError.
    """
    if (waiting := read_waiting(run.waits)) is None:
        return
    if waiting is UNREAD:
        raise OSError(errno.EAGAIN, "cannot be read now", str(run.waits))
    kept = msgspec.structs.replace(waiting, tried=waiting.tried + 1)
    if not kept.retry:
        kept = msgspec.structs.replace(kept, environment={})
    if kept.retry or kept.exclusive:
        write_waiting(run.kept, kept)
    else:
        # The keeper need not live until the run ends, and nobody else removes it.
        remove(run.kept)
    remove(run.waits)


def remove(file: Path) -> None:
    """Removes one of these files, whatever stands in its place. Raises OSError."""
    if os.path.isdir(file) and not os.path.islink(file):
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)


def find_waiting(runs_dir: Path) -> list[Entry]:
    """Returns the queue: the runs of a directory that wait in it, the next one first."""
    found = [Entry(run, waiting) for run in _with(runs_dir, RunDir.waits.name) if (waiting := read_waiting(run.waits))]
    return sorted(found, key=lambda one: one.rank)


def find_kept(runs_dir: Path) -> list[Entry]:
    """Returns the runs that the queue has started and whose end nobody has noted yet."""
    return [Entry(run, waiting) for run in _with(runs_dir, RunDir.kept.name) if (waiting := read_waiting(run.kept))]


def _with(runs_dir: Path, name: str) -> Iterator[RunDir]:
    return (run for run in find_run_dirs(runs_dir) if os.path.lexists(f"{run.path}/{name}"))
