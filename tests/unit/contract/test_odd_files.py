"""What lies where a run's files should: FIFOs, links, directories, and files of gigabytes that hold nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuiapp.trainers.contract.events import AnyEvent, LogLine, RunStarted
from tuiapp.trainers.contract.journal import (
    MAX_DAMAGE_BYTES,
    READ_BYTES,
    JournalReader,
    JournalWriter,
    journal_end,
    last_line,
)
from tuiapp.trainers.contract.lock import LockNote
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.status import last_attempt
from tuiapp.trainers.state.summary import summarise

LINE = LogLine(rank=0, stream="stdout", text="one")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    JournalWriter(target).close()
    path.symlink_to(target)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [fifo, link, device, directory])
def test_nobody_waits_for_or_follows_what_is_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    run = RunDir(tmp_path / "20261120T101500-torch-ddp-net-3fa1")
    run.path.mkdir()
    make(run.journal)
    make(run.lock)
    make(run.config)
    assert JournalReader(run.journal).read() == []
    assert journal_end(run.journal) == 0
    assert last_attempt(run) == 0
    assert not run.is_live()
    assert run.lock_note() == LockNote()
    assert summarise(run).status in ("lost", "unreadable")
    for refuses in (lambda: JournalWriter(run.journal), run.take_lock):
        with pytest.raises(OSError, match=r"not a regular file|Too many levels|Is a directory|No such device"):
            refuses()


def test_of_a_journal_of_nothing_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(tmp_path)
    writer = JournalWriter(run.journal)
    writer.append([started(1), LINE])
    writer.close()
    size = run.journal.stat().st_size
    written = 4 * MAX_DAMAGE_BYTES
    # Half of it written, half a hole.
    with run.journal.open("ab") as file:
        for _ in range(written // READ_BYTES):
            file.write(bytes(READ_BYTES))
    os.truncate(run.journal, size + 2 * written)
    read, plain = [0], os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        read[0] += len(data := plain(fd, size, offset))
        return data

    monkeypatch.setattr(os, "pread", counting)
    last_line(run.journal)
    assert 0 < read[0] < 1.1 * MAX_DAMAGE_BYTES
    read[0] = 0
    reader, events = JournalReader(run.journal), list[AnyEvent]()
    while more := reader.read():
        events += more
    assert [type(event) for event in events] == [RunStarted, LogLine]
    assert read[0] < 3 * MAX_DAMAGE_BYTES
    # The next writer cuts all of that off.
    JournalWriter(run.journal).close()
    assert run.journal.stat().st_size == size


def started(attempt: int) -> RunStarted:
    return RunStarted(
        run_id="x", attempt=attempt, host="", pid=1, config={}, world_size=1, steps_per_epoch=1, total_steps=1
    )


@pytest.mark.parametrize("behind", [0, 1, 40_000])
def test_the_last_attempt_without_a_note(tmp_path: Path, behind: int) -> None:
    run = RunDir(tmp_path)
    writer = JournalWriter(run.journal)
    writer.append([started(1), *[LINE] * behind, started(2), *[LINE] * behind])
    writer.close()
    assert last_attempt(run) == 2


def test_a_disk_that_does_not_confirm_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuiapp.trainers.run.journal_keeper import JournalWatch

    writer = JournalWriter(tmp_path / "events.jsonl")
    watch = JournalWatch(writer, None, 1)
    failed = OSError(5, "Input/output error")

    def fail(_: int) -> None:
        raise failed

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        writer.append([LINE], durable=True)
    writer.append([LINE], durable=True)
    (alert,) = watch.check()
    assert "did not confirm the journal's last second (Input/output error)" in alert.text
    assert watch.check() == []
    writer.close()
