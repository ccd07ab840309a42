"""Who has a run or a GPU, and what a run's holder tells by the lock file."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tuiapp.trainers.config.machine import Gpu
from tuiapp.trainers.contract import lock as locks
from tuiapp.trainers.contract.gpu_leases import choosing, directory, leases, with_leases
from tuiapp.trainers.contract.gpu_leases import take as take_gpus
from tuiapp.trainers.contract.lock import (
    BEATS_S,
    ERRORS,
    MAX_NAME_CHARACTERS,
    MAX_TROUBLE_CHARACTERS,
    NOTE_BYTES,
    OVER_AT,
    TRAINING_AT,
    Liveness,
    LockNote,
    beat,
    is_beating,
    is_held,
    read_note,
    signal_trouble,
    take,
    write_note,
)
from tuiapp.trainers.contract.process_identity import machine
from tuiapp.trainers.contract.rundir import RunDir

in_one_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


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


def test_a_lock_is_waited_for_as_long_as_said(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = take(path)
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        with pytest.raises(BlockingIOError):
            pool.submit(take, path, 0.1).result(timeout=10)
        assert 0.1 <= time.monotonic() - began < 5
        waiting = pool.submit(take, path, 30.0)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        os.close(held)
        os.close(waiting.result(timeout=10))


def test_what_will_never_be_locked_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=os.strerror(errno.ENOLCK)):
        take(tmp_path / "lock")
    assert is_held(tmp_path / "lock") is None
    assert len(os.listdir("/proc/self/fd")) == before


SECONDS = st.one_of(st.sampled_from([-BEATS_S, BEATS_S]), st.integers(-90, 90).map(float))


@given(SECONDS, SECONDS)
@example(BEATS_S, 0.0)
@example(-BEATS_S, 0.0)
@example(60.0, -59.0)
@in_one_directory
def test_a_beat_counts_by_either_clock_and_not_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, ahead_s: float
) -> None:
    path = tmp_path / "lock"
    fd = take(path)
    write_note(fd, LockNote(machine="another machine"))
    now = 1.8e9
    os.utime(fd, (now - age_s, now - age_s))
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now)
        patched.setattr(locks, "_ahead_s", lambda directory, minute: ahead_s)
        assert is_beating(path) == (abs(age_s) < BEATS_S or abs(age_s + ahead_s) < BEATS_S)
        write_note(fd, LockNote(machine=machine()))
        # What beats here holds the lock, or is dead.
        assert not is_beating(path)
    os.close(fd)


@given(st.text(), st.text())
@example("h" * MAX_NAME_CHARACTERS + "h", "t" * MAX_TROUBLE_CHARACTERS + "t")
@example("\x00" * MAX_NAME_CHARACTERS, "\x00" * MAX_TROUBLE_CHARACTERS)
@in_one_directory
def test_a_note_of_any_text_takes_the_same_room(tmp_path: Path, host: str, trouble: str) -> None:
    path = tmp_path / "lock"
    fd = take(path)
    note = LockNote(attempt=7, supervisor="9" * 100, machine="m" * 100, host=host, over=True, trouble=trouble)
    assert write_note(fd, note)
    assert os.fstat(fd).st_size == NOTE_BYTES
    read = read_note(path)
    assert (read.attempt, read.over, read.machine) == (7, True, note.machine)
    assert read.host == host[:MAX_NAME_CHARACTERS].encode("ascii", "replace").decode()
    assert read.trouble == trouble[:MAX_TROUBLE_CHARACTERS].encode("ascii", "replace").decode()
    os.close(fd)


def test_a_note_that_does_not_fit_on_the_disk_is_known(tmp_path: Path) -> None:
    fd = take(tmp_path / "lock")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (NOTE_BYTES // 2, hard))
    try:
        assert not write_note(fd, LockNote())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    os.close(fd)
    assert not write_note(os.open(tmp_path / "lock", os.O_RDONLY), LockNote())
    assert read_note(tmp_path / "lock") == LockNote()


@given(st.one_of(st.sampled_from(sorted(errno.errorcode)), st.integers(1, ERRORS - 1)), st.booleans())
@example(number=ERRORS - 1, over=False)
@example(number=1, over=True)
@in_one_directory
def test_every_error_has_its_byte(tmp_path: Path, number: int, over: bool) -> None:
    assert NOTE_BYTES <= TRAINING_AT < OVER_AT == TRAINING_AT + ERRORS
    fd = take(tmp_path / "lock")
    write_note(fd, LockNote())
    signal_trouble(fd, number, over=over)
    note = read_note(tmp_path / "lock")
    assert (f": {os.strerror(number)}. " in note.trouble, note.over) == (True, over)
    signal_trouble(fd, None)
    assert read_note(tmp_path / "lock") == LockNote()
    os.close(fd)


ONE, OTHER = "20261128T100000-script-train-3fa1", "20261128T100001-script-train-3fa2"


def held() -> list[tuple[str, str]]:
    return [(lease.gpu, lease.run) for lease in leases()]


def test_a_lease_is_held_until_the_last_process_that_has_it_ends() -> None:
    with choosing():
        first = take_gpus(["GPU-0", "GPU-1"], ONE)
        # A GPU may be shared, if its runs name it.
        second = take_gpus(["GPU-1"], OTHER)
    assert held() == [("GPU-0", ONE), ("GPU-1", ONE), ("GPU-1", OTHER)]
    with subprocess.Popen(["sleep", "60"], pass_fds=first) as supervisor:
        for fd in first:
            os.close(fd)
        assert len(held()) == 3
        gpus = tuple(Gpu(index=number, uuid=f"GPU-{number}", name="") for number in range(3))
        assert [[lease.run for lease in gpu.leases] for gpu in with_leases(gpus)] == [[ONE], [ONE, OTHER], []]
        supervisor.kill()
    assert held() == [("GPU-1", OTHER)]
    os.close(second[0])
    assert not held()
    # What they left is removed by whoever comes next.
    with choosing():
        take_gpus([], ONE)
    assert [path.name for path in directory().iterdir()] == ["choosing"]


def test_a_directory_that_cannot_be_written_keeps_nobody_from_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("TUIAPP_GPU_LEASES", str(blocked))
    with choosing():
        assert take_gpus(["GPU-0"], ONE) == []
    assert leases() == []


def test_what_somebody_else_put_there_is_ignored() -> None:
    with choosing():
        [fd] = take_gpus(["GPU-0"], ONE)
    os.mkfifo(directory() / "fifo")
    (directory() / "link").symlink_to(directory() / "choosing")
    (directory() / "nonsense").write_text("{")
    with choosing():
        others = take_gpus(["GPU-1", "GPU-2"], OTHER)
    os.pwrite(others[0], b'{"gpu":' + b"[" * 4000, 0)
    os.pwrite(others[1], b'{"gpu":"\xff"}', 0)
    assert held() == [("GPU-0", ONE)]
    for one in (fd, *others):
        os.close(one)
