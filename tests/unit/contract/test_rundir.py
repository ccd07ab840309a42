"""A run's directory, and the lock by which everybody sees whether its supervisor lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuiapp.trainers.contract.rundir import RUN_ID, RunDir, make_run_dir, new_run_id

HOLD = """
import sys
from pathlib import Path
from tuiapp.trainers.contract.rundir import RunDir
fd = RunDir(Path(sys.argv[1])).take_lock()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(run: RunDir) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the run's lock."""
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_goes_with_its_holder(tmp_path: Path, number: signal.Signals) -> None:
    run = RunDir(tmp_path)
    with holder(run) as process:
        assert run.is_live()
        process.send_signal(number)
        process.wait()
        assert not run.is_live()
        os.close(run.take_lock(timeout_s=0))


def test_a_stopped_holder_still_holds_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with holder(run) as process:
        process.send_signal(signal.SIGSTOP)
        assert run.is_live()


def test_there_is_one_holder(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with holder(run):
        began = time.monotonic()
        with pytest.raises(BlockingIOError):
            run.take_lock(timeout_s=0.1)
        assert time.monotonic() - began >= 0.1
        assert run.is_live()
    os.close(run.take_lock())
    # Those that lead elsewhere are other threads'.
    descriptors = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    assert str(run.lock) not in descriptors


def test_the_end_of_a_run_is_waited_for_as_long_as_it_may_take(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with holder(run) as process:
        assert not run.wait_until_over(0.05)
        process.kill()
        assert run.wait_until_over(60)


def test_a_look_does_not_keep_a_supervisor_out(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.lock.touch()
    look = "import sys; from pathlib import Path; from tuiapp.trainers.contract.rundir import RunDir\n"
    look += "print(1, flush=True)\n"
    look += "while True: RunDir(Path(sys.argv[1])).is_live()"
    with subprocess.Popen([sys.executable, "-c", look, str(tmp_path)], stdout=subprocess.PIPE) as looker:
        assert looker.stdout is not None
        looker.stdout.readline()
        try:
            for _ in range(50):
                os.close(run.take_lock(timeout_s=60))
        finally:
            looker.kill()


def test_a_name_that_is_taken_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = iter(["3fa1", "3fa1", "3fa2"])
    monkeypatch.setattr("os.urandom", lambda _: bytes.fromhex(next(digits)))
    monkeypatch.setattr("tuiapp.trainers.contract.rundir.time.strftime", lambda *_: "20261120T101500")
    made = [make_run_dir(tmp_path, "torch-ddp", "net").run_id for _ in range(2)]
    assert made == ["20261120T101500-torch-ddp-net-3fa1", "20261120T101500-torch-ddp-net-3fa2"]


def test_ids() -> None:
    before = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    ids = {new_run_id("torch-ddp", "net") for _ in range(20)}
    after = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    assert len(ids) > 15
    assert all(RUN_ID.fullmatch(name) for name in ids)
    assert all(before <= name[: len(before)] <= after for name in ids)
