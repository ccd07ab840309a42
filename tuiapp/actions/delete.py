"""Delete: ended runs with all that they have, and studies.

A directory is first renamed to a hidden name, then deleted, so that no list ever shows half a run. The next
removal deletes what an interrupted one left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from tuiapp.actions.action import ActionError, Outcome, Question, each, some
from tuiapp.library.find import titled
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RUN_ID, RunDir
from tuiapp.trainers.experiments.study import StudyDir
from tuiapp.trainers.state.summary import RunInfo, read_only_reason
from tuiapp.trainers.state.text import format_count, join_words, plural
from tuiapp.view.run_list import title

_REMOVED = ".removed-"


def refusal(info: RunInfo) -> str:
    """Says why a run cannot be deleted; "" if it can: also one that waits in the queue."""
    return "It has not ended. Stop it first: s." if info.is_live and info.waiting is None else ""


def check(runs: Sequence[RunDir]) -> None:
    """Raises ActionError if one of runs has not ended: then none is deleted."""
    if live := [run for run in runs if _is_running(run)]:
        raise ActionError("\n".join(map(_refused, live)))


def question(infos: Sequence[RunInfo]) -> Question:
    """Asks whether to delete runs, with what they are."""
    text = "Configuration, curves, checkpoints and exported model are deleted permanently."
    answers = [("keep", "Keep", "default"), ("delete", "Delete", "error")]
    heading = f"Delete {plural(len(infos), 'run')} with all checkpoints?"
    return Question(heading, f"{some([*map(described, infos)])}\n \n{text}", answers)


def described(info: RunInfo) -> str:
    """Says what a run is called, how it ended, and how far it came."""
    return join_words([title(info), info.status, f"{format_count(info.summary.steps)} steps"])


def do(runs: Sequence[RunDir]) -> Outcome:
    """Deletes those of runs that can be."""

    def delete_one(run: RunDir) -> str:
        name = titled(run)
        remove_run(run)
        return f"deleted {name}"

    outcome = each(runs, delete_one)
    for parent in {run.path.parent for run in runs}:
        sweep_removed(parent)
    return outcome


def remove_run(run: RunDir) -> None:
    """Removes a run; raises `ActionError` if it is live, not a run's directory, or cannot be deleted."""
    if RUN_ID.fullmatch(run.run_id) is None:
        raise ActionError(f"{run.path} does not have a run's name: if it is a run, remove it yourself.")
    if os.path.islink(run.path):
        raise ActionError(f"{run.path} is a link to {os.path.realpath(run.path)}: remove one of them yourself.")
    if reason := read_only_reason(run):
        raise ActionError(f"{run.run_id} is not removed: {reason}, or remove {run.path} yourself.")
    lock = _take_lock(run)
    try:
        hidden = _hide(run.path)
    finally:
        if lock is not None:
            os.close(lock)
    _delete(hidden)


def remove_study(study: StudyDir) -> None:
    """Removes a study's directory, with a search's trials, but none of its runs; raises `ActionError`."""
    _delete(_hide(study.path))


def _hide(path: Path) -> Path:
    hidden = path.with_name(f"{_REMOVED}{path.name}-{secrets.token_hex(4)}")
    try:
        os.rename(path, hidden)
    except OSError as error:
        raise ActionError(f"{path} cannot be removed: {error.strerror}.") from error
    return hidden


def sweep_removed(directory: Path) -> int:
    """Deletes what interrupted removals left in a directory; returns their number."""
    try:
        left = [Path(entry.path) for entry in os.scandir(directory) if entry.name.startswith(_REMOVED)]
    except OSError:
        return 0
    for path in left:
        with contextlib.suppress(ActionError):
            _delete(path)
    return len(left)


def _is_running(run: RunDir) -> bool:
    liveness = run.liveness()
    return liveness.is_live and liveness is not Liveness.WAITING


def _refused(run: RunDir) -> str:
    return f"{run.run_id} is running. Stop it first: tuiapp stop {run.run_id}"


def _take_lock(run: RunDir) -> int | None:
    running = ActionError(_refused(run))
    if _is_running(run):
        raise running
    if not os.path.exists(run.lock) and not os.access(run.path, os.W_OK):
        return None
    try:
        return run.take_lock(timeout_s=0.2)
    except BlockingIOError:
        raise running from None
    except OSError:
        return None


def _delete(hidden: Path) -> None:
    problems: list[str] = []

    def note(_function: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
        cause = error[1]
        # Another removal may be deleting the same.
        if not isinstance(cause, FileNotFoundError):
            problems.append(f"{path}: {getattr(cause, 'strerror', None) or cause}")

    # Renamed in Python 3.12; the old name works in 3.11, too.
    shutil.rmtree(hidden, onerror=note)
    if problems:
        raise ActionError(f"It is no longer listed, but some files could not be deleted: {problems[0]}")
