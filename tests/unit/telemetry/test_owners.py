"""Whose processes a driver lists, and the processes that a rank has started."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from tuiapp.trainers.telemetry import host
from tuiapp.trainers.telemetry.host import ProcessSampler, RankSampler

DESCRIBE = """
import os
os.environ["TUIAPP_TELEMETRY_HOST_PIDS"] = "1"
from tuiapp.trainers.telemetry.host import Owners
if os.fork():
    os.wait()
else:
    os.setgid(65534)
    os.setuid(65534)
    found = Owners({3: os.getpid()}).describe(os.getpid(), 5)
    print(found.rank, found.pid == os.getpid(), found.memory_bytes, flush=True)
"""
HIDDEN = ("unshare", "-mpf", "sh", "-c", 'mount -t proc -o hidepid="$0" proc /proc && exec "$@"')


@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_a_rank_below_a_process_that_may_not_be_read(hidepid: str) -> None:
    if subprocess.run([*HIDDEN, hidepid, "true"], capture_output=True, timeout=30).returncode:
        pytest.skip("may not mount proc")
    found = subprocess.run([*HIDDEN, hidepid, sys.executable, "-c", DESCRIBE], capture_output=True, timeout=60)
    assert found.stdout.decode() == "3 True 5\n", found.stderr.decode()


def test_processes_that_came_and_went_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUIAPP_TELEMETRY_HOST_PIDS", "1")
    monkeypatch.setattr(host, "KEPT", 4)
    known = host.Owners({})
    for _ in range(10):
        with subprocess.Popen(["sleep", "60"]) as process:
            assert known.describe(process.pid, 5).pid == process.pid
            process.kill()
    assert len(known._known) <= 4


PARENT = """
import subprocess, sys
busy = subprocess.Popen([sys.executable, "-c", "data = bytearray(64 << 20)\\nwhile True: pass"])
print(busy.pid, flush=True)
sys.stdin.read()
busy.kill(), busy.wait()
print("alone", flush=True)
sys.stdin.close()
import time; time.sleep(600)
"""


def test_children_count_while_they_are_there() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            child = psutil.Process(int(parent.stdout.readline()))
            rank, alone = RankSampler(parent.pid), ProcessSampler(parent.pid)
            deadline = time.monotonic() + 60
            while (found := rank.sample(time.monotonic()))["rss_bytes"] or 0:
                assert time.monotonic() < deadline, found
                if (found["cpu_percent"] or 0) > 5 and (found["rss_bytes"] or 0) > 64 << 20:
                    break
                time.sleep(0.1)
            assert found["threads"] == 2
            assert (alone.sample(time.monotonic())["rss_bytes"] or 0) < 64 << 20
            parent.stdin.close()
            assert parent.stdout.readline() == b"alone\n"
            assert not child.is_running()
            assert rank.sample(time.monotonic())["threads"] == 1
        finally:
            parent.kill()
    with pytest.raises(psutil.NoSuchProcess):
        rank.sample(time.monotonic())
