"""What a supervisor can tell of its journal when the disk takes nothing more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from trainers.contract.lock_note import LockNote, read_note, signal_trouble, write_note
from trainers.contract.rundir import RunDir


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
