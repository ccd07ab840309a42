"""Who has a run, and what its holder tells by the lock file: that the disk takes nothing more, that it lives."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from trainers.contract.lock import BEATS_S, Liveness, LockNote, beat, signal_trouble, write_note
from trainers.contract.rundir import RunDir


def test_who_has_a_run(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    assert run.liveness() is Liveness.UNKNOWN
    run.path.mkdir()
    assert run.liveness() is Liveness.UNKNOWN
    lock, job = run.take_lock(), run.take_job()
    run.queued.write_text("17")
    assert run.liveness() is Liveness.HELD
    os.close(lock)
    assert run.liveness() is Liveness.JOB
    os.close(job)
    assert (run.liveness(), run.has_job()) == (Liveness.UNWATCHED_JOB, True)
    lock = run.take_lock()
    write_note(lock, LockNote(machine="another machine"))
    os.close(lock)
    assert run.liveness() is Liveness.ELSEWHERE
    os.utime(run.lock, (0, 0))
    run.queued.unlink()
    assert (run.liveness(), run.has_job()) == (Liveness.NOBODY, False)
    assert [one for one in Liveness if not one.is_live] == [Liveness.NOBODY, Liveness.UNKNOWN]


def test_the_reason_is_told_without_a_byte_written(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    lock = run.take_lock()
    write_note(lock, LockNote(attempt=3))
    before = run.lock.read_bytes()
    assert run.lock_note() == LockNote(attempt=3)
    for number in (errno.ENOSPC, errno.EDQUOT):
        signal_trouble(lock, number)
        told = f"the journal cannot be written: {os.strerror(number)}. Training continues"
        assert run.lock_note() == LockNote(attempt=3, trouble=told)
    assert run.is_live()
    signal_trouble(lock, errno.ENOSPC, over=True)
    over = "the journal cannot be written: No space left on device. The run has ended and waits for disk space"
    assert run.lock_note() == LockNote(attempt=3, trouble=over, over=True)
    signal_trouble(lock, None)
    assert run.lock_note().trouble == ""
    signal_trouble(lock, errno.EDQUOT)
    assert run.lock.read_bytes() == before
    os.close(lock)
    assert run.lock_note().trouble == ""
    assert not run.is_live()


def test_the_note_itself_comes_first(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    lock = run.take_lock()
    signal_trouble(lock, errno.EDQUOT)
    write_note(lock, LockNote(trouble="said at length"))
    assert run.lock_note().trouble == "said at length"
    os.close(lock)


def test_a_supervisor_of_another_machine_is_seen_by_its_beat_where_its_lock_is_not(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    fd = run.take_lock()
    write_note(fd, LockNote(machine="another machine", host="gpu-7"))
    # Where locks are each machine's own, as over sshfs, this one sees none.
    fcntl.flock(fd, fcntl.LOCK_UN)
    assert run.is_live()
    os.utime(fd, (time.time(), time.time() - BEATS_S - 1))
    assert not run.is_live()
    beat(fd)
    assert run.is_live()
    write_note(fd, LockNote(host="gpu-7"))
    assert not run.is_live()
    os.close(fd)
