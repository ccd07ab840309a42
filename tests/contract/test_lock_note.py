"""What a supervisor can tell by its lock file: that the disk takes nothing more, that it lives."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from trainers.contract.lock_note import LockNote, read_note, signal_trouble, write_note
from trainers.contract.rundir import BEATS_S, RunDir, beat


def test_the_reason_is_told_without_a_byte_written(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    lock = run.take_lock()
    write_note(lock, LockNote(attempt=3))
    before = run.lock.read_bytes()
    assert read_note(run) == LockNote(attempt=3)
    for number in (errno.ENOSPC, errno.EDQUOT):
        signal_trouble(lock, number)
        told = f"the journal cannot be written: {os.strerror(number)}. Training continues"
        assert read_note(run) == LockNote(attempt=3, trouble=told)
    assert run.is_live()
    signal_trouble(lock, errno.ENOSPC, over=True)
    over = "the journal cannot be written: No space left on device. The run has ended and waits for disk space"
    assert read_note(run) == LockNote(attempt=3, trouble=over, over=True)
    signal_trouble(lock, None)
    assert read_note(run).trouble == ""
    signal_trouble(lock, errno.EDQUOT)
    assert run.lock.read_bytes() == before
    os.close(lock)
    assert read_note(run).trouble == ""
    assert not run.is_live()


def test_the_note_itself_comes_first(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    lock = run.take_lock()
    signal_trouble(lock, errno.EDQUOT)
    write_note(lock, LockNote(trouble="said at length"))
    assert read_note(run).trouble == "said at length"
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
