"""A scaling study or a shoot-out: a group of queued runs, and `studies/NAME/study.json` for what those cannot tell."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tuiapp.trainers.config.files import make_private, read_limited, write_atomically
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.options import shown, suggest
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.about import MAX_TAG_CHARACTERS, About
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.experiments.queue import QueueError, add, cancel
from tuiapp.trainers.experiments.study import (
    MAX_FILE_BYTES,
    NAME,
    NAME_RULE,
    StudyDir,
    StudyError,
    runs_of_group,
    studies_dir,
)


class GroupStudy(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["scale", "shootout"]
    weak: bool = False
    """Of a scaling study: the global batch grows with the devices."""
    order: list[str] = []
    """Of a shoot-out: the backends, the one first that the others are compared with."""
    left_out: dict[str, str] = {}
    """Backend → why it cannot run here."""
    created: float = msgspec.field(default_factory=time.time)


class Planned(NamedTuple):
    """A run of a study that is to be queued."""

    config: RunConfig
    note: str


def begin_study(
    runs_dir: Path, name: str, study: GroupStudy, plans: Sequence[Planned], repeat: int, machine: Machine
) -> list[RunDir]:
    """Queues all runs of a study, each to run alone: one of each plan, then one of each again, `repeat` times.

    So whatever else the machine does meets them all alike. Raises StudyError if there is a study or group of that name,
    OSError, and as `queue.add`; then nothing stays queued.
    """
    file, runs = study_file(runs_dir, name), list[RunDir]()
    if file.exists() or runs_of_group(runs_dir, name):
        raise StudyError(f"There is a group {name} already: choose another --name, or print it with --show {name}.")
    try:
        for directory in (runs_dir, file.parent.parent, file.parent):
            make_private(directory)
        write_atomically(file, msgspec.json.format(msgspec.json.encode(study)) + b"\n")
        for _ in range(repeat):
            for config, note in plans:
                about = About(group=name, note=note)
                runs.append(add(config, runs_dir, about, machine=machine, exclusive=True, parallel=1))
    except BaseException:
        # Ctrl-C, too.
        for run in runs:
            with contextlib.suppress(QueueError):
                cancel(runs_dir, run)
        shutil.rmtree(file.parent, ignore_errors=True)
        raise
    return runs


def read_study(runs_dir: Path, name: str, kind: str) -> GroupStudy:
    """Returns the study of that name; raises StudyError if there is none, or it is of another kind."""
    known = study_names(runs_dir, kind)
    if name not in known:
        hint = suggest(name, known) or (f" There are: {', '.join(known)}." if known else " There is none yet.")
        raise StudyError(f"There is no study {shown(name)} that tuiapp {kind} has made.{hint}")
    study = _read(study_file(runs_dir, name))
    assert study is not None
    return study


def study_names(runs_dir: Path, kind: str) -> list[str]:
    """Returns the names of all studies of a kind."""
    with contextlib.suppress(OSError):
        names = sorted(name for name in os.listdir(studies_dir(runs_dir)) if NAME.fullmatch(name))
        return [name for name in names if (found := _read(study_file(runs_dir, name))) and found.kind == kind]
    return []


def free_name(runs_dir: Path, wanted: str) -> str:
    """Returns a name for a new study that none has: the one wanted, or else with a number."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted)[: MAX_TAG_CHARACTERS - 4]
    names = (base if number == 1 else f"{base}-{number}" for number in range(1, 1000))
    return next(name for name in names if not study_file(runs_dir, name).parent.exists())


def check_name(name: str) -> str:
    """Returns a study's name; raises StudyError if it cannot be one."""
    if not NAME.fullmatch(name):
        raise StudyError(f"{shown(name)} cannot be a study's name; use {NAME_RULE}.")
    return name


def study_file(runs_dir: Path, name: str) -> Path:
    """Returns where a study's own file is."""
    return StudyDir(runs_dir, name).file


def _read(file: Path) -> GroupStudy | None:
    try:
        return msgspec.json.decode(read_limited(file, MAX_FILE_BYTES), type=GroupStudy)
    except (OSError, ValueError, RecursionError):
        # Also that of another kind, which is no concern of these.
        return None
