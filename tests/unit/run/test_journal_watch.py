"""How long a run that is over waits for room. Time is the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuiapp.trainers.config.settings import settings_path
from tuiapp.trainers.contract.events import LogLine
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.run import journal_keeper
from tuiapp.trainers.run.journal_keeper import END_WAIT_S, JournalWatch

LINE = LogLine(rank=0, stream="stdout", text="x")


def test_it_waits_once_however_often_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(journal_keeper, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(journal_keeper, "monotonic", lambda: 1000.0 + sum(slept))
    writer = JournalWriter(tmp_path / "events.jsonl")
    full, file = os.open("/dev/full", os.O_WRONLY), os.dup(writer._fd)
    os.dup2(full, writer._fd)
    watch = JournalWatch(writer, None, 1)
    # Before the run's last event, and after it.
    for _ in range(2):
        writer.append([LINE])
        watch.wait_for_room(lambda: False)
    assert END_WAIT_S <= sum(slept) < END_WAIT_S + 1
    # Room at last: what waited is written.
    os.dup2(file, writer._fd)
    writer.close()
    assert (tmp_path / "events.jsonl").read_bytes().count(b"\n") == 2
    os.close(full)
    os.close(file)


def test_a_large_journal_is_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings_path().parent.mkdir()
    settings_path().write_text("large_journal_mib = 1\n")
    writer = JournalWriter(tmp_path / "events.jsonl")
    watch = JournalWatch(writer, None, 1)
    assert watch.check() == []
    writer.append([LogLine(rank=0, stream="stdout", text="x" * (1 << 20))])
    (alert,) = watch.check()
    assert alert.text.startswith("the journal has grown beyond 1.00 MiB")
    assert watch.check() == []
    writer.close()


FULL = """
import resource, sys
from pathlib import Path
from tuiapp.trainers.contract.events import LogLine
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.journal_keeper import JournalWatch

run = RunDir(Path(sys.argv[1]))
writer = JournalWriter(run.journal)
watch = JournalWatch(writer, run.take_lock(), 1)
for bytes in (0, resource.RLIM_INFINITY):
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, resource.RLIM_INFINITY))
    writer.append([LogLine(rank=None, stream="run", text="a line")])
    watch.check()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(run.lock_note().trouble, flush=True)
"""


def test_where_not_even_the_note_can_be_written_views_learn_why(tmp_path: Path) -> None:
    """As on a full Btrfs or ZFS, which writes nothing in place."""
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "the journal cannot be written: File too large. Training continues\n\n", done.stderr
