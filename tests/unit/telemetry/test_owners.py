"""Whose processes a driver lists."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tuiapp.trainers.telemetry import host

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
