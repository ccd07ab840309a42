"""A run's directory: its lock, its mailbox, and what lies where its files should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuiapp.trainers.contract import sidecars
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
from tuiapp.trainers.contract.rundir import RUN_ID, RunDir, make_run_dir, new_run_id
from tuiapp.trainers.state.status import last_attempt
from tuiapp.trainers.state.summary import summarise

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


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    directory = tmp_path / "commands"
    directory.mkdir()
    return directory


def test_taken_once_in_the_order_in_which_they_were_sent(commands: Path) -> None:
    assert sidecars.take_commands(commands) == []
    for command in ("stop", "stop-now", "stop"):
        sidecars.send_command(commands, command)
    assert sidecars.take_commands(commands) == ["stop", "stop-now", "stop"]
    assert sidecars.take_commands(commands) == []
    assert list(commands.iterdir()) == []


def test_what_is_no_command_is_removed(commands: Path) -> None:
    for name in ("1-aaaa.checkpoint-at-noon", "notes", "stop", "2-bbbb.stop.swp", "3-cccc.STOP"):
        (commands / name).write_text("x" * 1000)
    (commands / "4-dddd.stop-now").touch()
    assert sidecars.take_commands(commands) == ["stop-now"]
    assert list(commands.iterdir()) == []


def test_a_profile_has_a_number_of_steps(commands: Path) -> None:
    sidecars.send_command(commands, "profile", 10)
    for name in ("2-b.profile", "3-c.profile=0", "4-d.profile=", "5-e.profile=99999", "6-f.stop=3", "7-g.profile=²"):
        (commands / name).touch()
    assert sidecars.take_commands(commands) == ["profile=10"]
    assert list(commands.iterdir()) == []


def test_a_command_under_way_is_left_alone(commands: Path) -> None:
    (commands / ".1-aaaa.stop.x7").touch()
    assert sidecars.take_commands(commands) == []
    assert len(list(commands.iterdir())) == 1


def test_many_senders(commands: Path) -> None:

    def send() -> None:
        for _ in range(10):
            sidecars.send_command(commands, "stop")

    senders = [threading.Thread(target=send) for _ in range(8)]
    for sender in senders:
        sender.start()
    taken: list[str] = []
    while any(sender.is_alive() for sender in senders):
        taken += sidecars.take_commands(commands)
    for sender in senders:
        sender.join()
    taken += sidecars.take_commands(commands)
    assert taken == ["stop"] * 80


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


def test_a_lock_that_is_none(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.lock.mkdir()
    assert not run.is_live()
