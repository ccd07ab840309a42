"""A rank's figures count the processes that it has started."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from tuiapp.trainers.telemetry.host import ProcessSampler, RankSampler

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
