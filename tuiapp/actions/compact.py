"""Compact: neighbouring rows of metrics are joined in the journals of ended runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from tuiapp.actions.action import ActionError, Outcome, Question, each, unreadable
from tuiapp.library.compaction import ENTRIES, compacted
from tuiapp.library.find import titled
from tuiapp.trainers.config.files import open_own, write_atomically
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.status import Details, write_status
from tuiapp.trainers.state.status import known
from tuiapp.trainers.state.summary import RunInfo, read_only_reason
from tuiapp.trainers.state.text import format_bytes, plural


def refusal(info: RunInfo) -> str:
    """Says why a run's journal cannot be compacted; "" if it can."""
    return "It has not ended. Stop it first: s." if info.is_live else unreadable(info)


def question(runs: Sequence[RunDir]) -> Question:
    """Asks whether to compact the journals of runs."""
    left = f"Of each metric of a rank some {ENTRIES:,} entries are left, with mean, least, greatest and last value."
    return Question(
        f"Compact {plural(len(runs), 'journal')}?",
        left,
        [("keep", "Keep", "default"), ("compact", "Compact", "warning")],
    )


def do(runs: Sequence[RunDir]) -> Outcome:
    """Compacts the journals of those of runs that have ended."""

    def compact_one(run: RunDir) -> str:
        before, after = compact(run)
        sizes = f"{format_bytes(before)}, now {format_bytes(after)}" if after < before else "nothing to join"
        return f"journal of {titled(run)}: {sizes}"

    return each(runs, compact_one)


def compact(run: RunDir) -> tuple[int, int]:
    """Replaces a run's journal by a smaller one, if that is possible; returns its bytes before and after.

    Raises ActionError, and leaves it as it is, if the run has not ended, or the journal cannot be read or written.
    """
    if reason := read_only_reason(run):
        raise ActionError(f"{run.run_id} is not compacted: {reason}.")
    if run.is_live():
        raise ActionError(f"{run.run_id} is running. Stop it first: tuiapp stop {run.run_id}")
    new = run.journal.with_name(f"{run.journal.name}.compacted")
    try:
        # Not at once truncated: another process may be writing it.
        with open_own(new, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            was = os.stat(run.journal)
            try:
                file.writelines(compacted(run.journal))
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
                if size < was.st_size:
                    _replace(run, new, was)
                    return was.st_size, size
            finally:
                with suppress(FileNotFoundError):
                    new.unlink()
    except BlockingIOError:
        raise ActionError(f"{run.run_id} is being compacted, or has just been started.") from None
    except OSError as error:
        raise ActionError(f"The journal of {run.run_id} is as it was: {error.strerror or error}.") from error
    return was.st_size, was.st_size


def _replace(run: RunDir, new: os.PathLike[str], was: os.stat_result) -> None:
    """Puts a new journal in the old one's place. Raises OSError if somebody has the run."""
    lock = run.take_lock(timeout_s=0.2)
    try:
        now = os.stat(run.journal)
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (was.st_ino, was.st_size, was.st_mtime_ns):
            raise BlockingIOError
        os.replace(new, run.journal)
        # What is made of the journal, up to a place in it.
        run.digest.unlink(missing_ok=True)
        _move_mirror(run, was.st_size)
        with suppress(OSError):
            recorded = known(run, Liveness.NOBODY)
            write_status(run, recorded.status, recorded.facts, Details())
        directory = os.open(run.path, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
    finally:
        os.close(lock)


def _move_mirror(run: RunDir, size: int) -> None:
    """Has a mirror that has all of the journal go on after the new one's end."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        mirrored = msgspec.json.decode(run.mirror.read_bytes())
        if mirrored["offset"] == size:
            moved = {**mirrored, "offset": run.journal.stat().st_size}
            write_atomically(run.mirror, msgspec.json.encode(moved))
