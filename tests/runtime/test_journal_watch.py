"""How long a run that is over waits for room. Time is the test's own."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainers.contract.events import LogLine
from trainers.contract.journal import JournalWriter
from trainers.runtime import journal_watch
from trainers.runtime.journal_watch import END_WAIT_S, JournalWatch

LINE = LogLine(rank=0, stream="stdout", text="x")


def test_it_waits_once_however_often_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(journal_watch, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(journal_watch, "monotonic", lambda: 1000.0 + sum(slept))
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
