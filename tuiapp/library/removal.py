"""Removes runs, and studies.

A directory is first renamed to a hidden name, then deleted, so that no list ever shows half a run. The next
removal deletes what an interrupted one left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from tuiapp.trainers.contract.rundir import RUN_ID, RunDir
from tuiapp.trainers.experiments.study import StudyDir
from tuiapp.trainers.state.summary import read_only_reason

_REMOVED = ".removed-"


class RemovalError(Exception):
    """A run was not removed; the message gives the reason and what to do."""


def remove_run(run: RunDir) -> None:
    """Removes a run; raises `RemovalError` if it is live, not a run's directory, or cannot be deleted."""
    if RUN_ID.fullmatch(run.run_id) is None:
        raise RemovalError(f"{run.path} does not have a run's name: if it is a run, remove it yourself.")
    if run.path.is_symlink():
        raise RemovalError(f"{run.path} is a link to {os.path.realpath(run.path)}: remove one of them yourself.")
    if reason := read_only_reason(run):
        raise RemovalError(f"{run.run_id} is not removed: {reason}, or remove {run.path} yourself.")
    lock = _take_lock(run)
    try:
        hidden = _hide(run.path)
    finally:
        if lock is not None:
            os.close(lock)
    _delete(hidden)


def remove_study(place: StudyDir) -> None:
    """Removes what was asked for in a study, and a search's trials, but none of its runs; raises `RemovalError`."""
    _delete(_hide(place.path))


def _hide(path: Path) -> Path:
    hidden = path.with_name(f"{_REMOVED}{path.name}-{secrets.token_hex(4)}")
    try:
        os.rename(path, hidden)
    except OSError as error:
        raise RemovalError(f"{path} cannot be removed: {error.strerror}.") from error
    return hidden


def sweep_removed(directory: Path) -> int:
    """Deletes what interrupted removals left in a directory; returns their number."""
    try:
        left = [Path(entry.path) for entry in os.scandir(directory) if entry.name.startswith(_REMOVED)]
    except OSError:
        return 0
    for path in left:
        with contextlib.suppress(RemovalError):
            _delete(path)
    return len(left)


def _take_lock(run: RunDir) -> int | None:
    running = RemovalError(f"{run.run_id} is running. Stop it first: tuiapp stop {run.run_id}")
    if run.is_live():
        raise running
    if not run.lock.exists() and not os.access(run.path, os.W_OK):
        return None
    try:
        return run.take_lock(timeout_s=0.2)
    except BlockingIOError:
        raise running from None
    except OSError:
        return None


def _delete(hidden: Path) -> None:
    problems: list[str] = []

    def note(_function: object, path: str, error: object) -> None:
        cause = error[1] if isinstance(error, tuple) else error
        # Another removal may be deleting the same.
        if not isinstance(cause, FileNotFoundError):
            problems.append(f"{path}: {getattr(cause, 'strerror', None) or cause}")

    # Renamed in Python 3.12; the old name works in 3.11, too.
    shutil.rmtree(hidden, onerror=note)
    if problems:
        raise RemovalError(f"It is no longer listed, but some files could not be deleted: {problems[0]}")
