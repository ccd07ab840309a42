"""Whatever becomes of the process that reads a journal ahead, nothing is missing and nothing stays behind."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import psutil
import pytest

from tests.benchmarks.long_run import record
from tests.state.ahead_runs import assert_same, history, read_here, read_with, write
from tests.state.test_feed import until
from trainers.contract.rundir import RunDir
from tuiapp.feeds import ahead
from tuiapp.feeds.ahead import ReadAhead
from tuiapp.feeds.ahead_feed import AheadFeed
from tuiapp.feeds.ahead_worker import Message

pytestmark = pytest.mark.usefixtures("patient_ahead")

SMALL_PARTS = """
import os, sys
import trainers.contract.journal
from tuiapp.feeds import ahead_worker

trainers.contract.journal.READ_BYTES = ahead_worker.MESSAGE_BYTES = 20_000
left, write = {limit}, os.write

def write_some(fd, data):
    global left
    written = write(fd, data[:left])
    left -= written
    if not left:
        os.kill(os.getpid(), 9)
    return written

os.write = write_some
ahead_worker.main(sys.argv[1])
"""
"""Reads a journal in small parts, and is killed after so many bytes of what it says."""


LINGERS = "import sys, time; from tuiapp.feeds import ahead_worker; ahead_worker.main(sys.argv[1]); time.sleep(600)"
"""Reads a journal, and stays."""


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("limit", [2, 40_000, 100_000, 10**9])
def test_a_reader_that_is_killed_midway(run: RunDir, limit: int) -> None:
    write(run, [event for seed in (3, 4, 5) for event in history(seed)])
    feed = AheadFeed(run, ReadAhead(run.journal, ("-P", "-c", SMALL_PARTS.format(limit=limit))))
    feed.start()
    assert_same(read_with(feed, run), read_here(run))
    feed.close()


JUNK = [
    b"no message at all",
    b"",
    (5).to_bytes(4, "big") + b"\xc1abcd",
    *[
        len(message).to_bytes(4, "big") + message
        for message in map(msgspec.msgpack.encode, [Message(10**12, []), Message(0, []), [5, [{"type": "digest"}]]])
    ],
]


@pytest.mark.parametrize("junk", JUNK)
def test_a_reader_that_says_what_is_no_message(run: RunDir, junk: bytes) -> None:
    write(run, history(1))
    script = f"import sys; sys.stdout.buffer.write({junk!r})"
    feed = AheadFeed(run, ReadAhead(run.journal, ("-c", script)))
    feed.start()
    assert_same(read_with(feed, run), read_here(run))
    feed.close()


def test_a_reader_that_hangs(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PATIENCE_S", 0.05)
    write(run, history(1))
    reader = ReadAhead(run.journal, ("-c", "import time; time.sleep(600)"))
    feed = AheadFeed(run, reader)
    feed.start()
    assert_same(read_with(feed, run), read_here(run))
    assert gone(reader.pid)
    feed.close()


@pytest.mark.parametrize("started", [True, False])
def test_closed_early_it_leaves_no_process(run: RunDir, started: bool) -> None:
    record(run, 12_000)
    # It does not end before it is closed, however little there is to read.
    reader = ReadAhead(run.journal, ("-P", "-c", LINGERS))
    feed = AheadFeed(run, reader)
    if started:
        feed.start()
        until(lambda: bool(feed.take(1)))
    feed.close()
    assert not psutil.pid_exists(reader.pid)
    if started:
        feed._thread.join(30)
        assert not feed._thread.is_alive()
        assert feed._tail is None


def test_it_does_not_outlive_the_dashboard(run: RunDir) -> None:
    record(run, 12_000)
    script = (
        "import sys; from pathlib import Path; from tuiapp.feeds.ahead import ReadAhead;"
        "print(ReadAhead(Path(sys.argv[1])).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(run.journal)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as dashboard:
        assert dashboard.stdout
        pid = int(dashboard.stdout.readline())
        dashboard.kill()
    until(lambda: gone(pid))
