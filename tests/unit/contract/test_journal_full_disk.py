"""A journal whose disk is full: kept, written later, nothing lost or twice there. Real limits, in a real process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tuiapp.trainers.contract.events import LogLine
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter

LIMITED = textwrap.dedent(
    """
    import resource, sys
    from pathlib import Path
    from tuiapp.trainers.contract import journal
    from tuiapp.trainers.contract.events import LogLine

    def line(number):
        return LogLine(rank=0, stream="stdout", text=f"line {number} " + "x" * 100)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    journal.MAX_PENDING_BYTES = int(sys.argv[2])
    writer = journal.JournalWriter(Path(sys.argv[1]))
    blocked = []
    for number in range(60):
        # Full, with some room after 20 lines, and after 40 as much as is wanted.
        limit([2000, 5000, resource.RLIM_INFINITY][number // 20])
        writer.append([line(number)], durable=number % 5 == 0)
        writer.sync_due()
        blocked.append(writer.blocked is not None)
    assert not blocked[0] and blocked[19] and blocked[39] and not blocked[40] and not blocked[-1], blocked
    writer.close()
    print(writer.dropped)
    """
)


def run_limited(path: Path, pending_bytes: int) -> int:
    command = [sys.executable, "-c", LIMITED, str(path), str(pending_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def read(path: Path) -> tuple[list[int], list[int]]:
    """The numbers that the writer gave, and those in the lines."""
    events, reader = [], JournalReader(path)
    while more := reader.read():
        events += more
    lines = [event for event in events if isinstance(event, LogLine)]
    return [event.seq for event in lines], [int(event.text.split()[1]) for event in lines]


def test_nothing_is_lost_while_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert run_limited(path, 1 << 20) == 0
    assert read(path) == (list(range(1, 61)), list(range(60)))


def test_what_waits_is_bounded_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    dropped = run_limited(path, 1000)
    seqs, numbers = read(path)
    assert dropped > 0
    assert len(numbers) == 60 - dropped
    assert numbers == sorted(set(numbers))
    assert seqs == list(range(1, 61 - dropped))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_always_full(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = JournalWriter(path)
    # The same descriptor, now leading to a disk that is full.
    descriptor = next(
        int(name) for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}") == str(path)
    )
    kept, full = os.dup(descriptor), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor)
    writer.append([LogLine(rank=0, stream="stdout", text="one")], durable=True)
    assert writer.blocked is not None
    assert writer.blocked.strerror == "No space left on device"
    assert path.read_bytes() == b""
    os.dup2(kept, descriptor)
    writer.append([])
    assert writer.blocked is None
    assert path.read_bytes().count(b"one") == 1
    writer.close()
    os.close(kept)
    os.close(full)
