"""The supervisor's journal and digest: what waits for room, what is told of checkpoints, and what damage costs."""

from __future__ import annotations

import itertools
import os
import random
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kit import histories as h
from tests.kit.digest_runs import history
from tests.kit.disks import tmpfs
from tests.kit.fake_ranks import NotingRank
from tests.kit.same_states import assert_same
from tuiapp.trainers.config.settings import settings_path
from tuiapp.trainers.contract.events import LogLine
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import journal_keeper, wire
from tuiapp.trainers.run.journal_keeper import END_WAIT_S, CheckpointAck, DigestWriter, JournalWatch
from tuiapp.trainers.state import snapshot
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.snapshot import load


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def assert_complete(run: RunDir) -> None:
    """What the digest and the rest of the journal come to is what all of the journal does."""
    found, whole = load(run) or snapshot.Snapshot(snapshot.new_state(), 0), snapshot.new_state()
    for event in JournalReader(run.journal, found.offset).rest():
        apply(found.state, event)
    for event in JournalReader(run.journal).rest():
        apply(whole, event)
    assert_same(found.state, whole)


WRITER = """
import sys
from pathlib import Path
from msgspec.structs import replace
from tests.kit.digest_runs import history
from tuiapp.trainers.contract.events import RunStarted
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import journal_keeper
from tuiapp.trainers.state import series
journal_keeper.WRITE_EVERY_BYTES = 1 << 14
run = RunDir(Path(sys.argv[1]))
journal = JournalWriter(run.journal)
digest = journal_keeper.DigestWriter(run, journal)
print("ready", flush=True)
attempt = int(sys.argv[2])
for seed in range(attempt, attempt + 10_000):
    for event in history(seed):
        if isinstance(event, RunStarted):
            attempt += 1
            event = replace(event, attempt=attempt)
        journal.append([event])
        digest.write_due()
"""


@pytest.mark.nightly
def test_killed_at_any_moment_it_loses_nothing(run: RunDir) -> None:
    dice, digests = random.Random(1), 0
    for attempt in range(12):
        command = [sys.executable, "-c", WRITER, str(run.path), str(attempt * 10_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(dice.random() * 0.3)
            process.kill()
        digests += load(run) is not None
        assert_complete(run)
    assert digests > 6


def test_it_is_replaced_as_the_journal_grows(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_keeper, "WRITE_EVERY_BYTES", 1000)
    journal = JournalWriter(run.journal)
    digest, written = DigestWriter(run, journal), dict[int, int]()
    for number in range(100):
        journal.append([LogLine(rank=0, stream="stdout", text=f"line {number}")])
        digest.write_due()
        if found := load(run):
            written[found.offset] = run.digest.stat().st_size
    # Never more often than the journal has grown by the digest's size: it must not cost more than the journal.
    assert 1000 <= min(written) < 1200
    assert len(written) > 3
    assert all(after - before >= written[before] for before, after in itertools.pairwise(written))
    digest.write()
    journal.close()
    whole = load(run)
    assert whole
    assert whole.offset == run.journal.stat().st_size
    assert len(whole.state.log) == 100


def test_it_waits_for_what_the_journal_has_no_room_for(run: RunDir) -> None:
    journal = JournalWriter(run.journal)
    digest = DigestWriter(run, journal)
    line = LogLine(rank=0, stream="stdout", text="x" * 100)
    journal.append([line] * 10)
    # Python ignores the signal that comes with it.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.offset + 150, hard))
    try:
        journal.append([line] * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal.blocked
    digest.write()
    assert not run.digest.exists()
    journal.flush()
    digest.write()
    journal.close()
    whole = load(run)
    assert whole
    assert len(whole.state.log) == 20


def test_a_full_disk_costs_the_digest_alone(tmp_path: Path) -> None:
    events = history(1)
    with tmpfs(tmp_path / "small", "768k") as place:
        run = RunDir(place)
        journal = JournalWriter(run.journal)
        digest = DigestWriter(run, journal)
        journal.append(events)
        digest.write()
        before = run.digest.read_bytes()
        with (place / "in-the-way").open("wb", buffering=0) as file:
            with suppress(OSError):
                while True:
                    file.write(bytes(4096))
            file.truncate(file.tell() - 8192)
        journal.append([LogLine(rank=0, stream="stdout", text="a line")])
        digest.write()
        assert journal.blocked is None
        assert run.digest.read_bytes() == before
        assert not [*place.glob("digest?*")]
        (place / "in-the-way").unlink()
        digest.write()
        journal.close()
        now = load(run)
        assert now
        assert now.offset == run.journal.stat().st_size


@pytest.mark.parametrize("part", ["tuiapp.trainers.run.journal_keeper.apply", "tuiapp.trainers.state.snapshot.save"])
def test_a_fault_in_it_costs_the_digest_alone(
    part: str, run: RunDir, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    journal = JournalWriter(run.journal)
    digest = DigestWriter(run, journal)
    journal.append(history(1))
    digest.write()
    monkeypatch.setattr(part, lambda *_: 1 / 0)
    journal.append(history(2))
    digest.write()
    journal.close()
    monkeypatch.undo()
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert_complete(run)


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


def test_told_once_all_ranks_steps_are_there(tmp_path: Path) -> None:
    recorder, writer = CheckpointAck(JournalWriter(tmp_path / "events.jsonl")), NotingRank(0)
    recorder.report_covered(29, writer)
    recorder.add(h.checkpoint(29, 1.0))
    recorder.add(h.checkpoint(58, 2.0))
    recorder.report_covered(28, writer)
    assert writer.told == []
    recorder.report_covered(30, writer)
    recorder.report_covered(57, writer)
    assert writer.told == [wire.Recorded(29)]
    recorder.report_covered(60, None)
    recorder.report_covered(61, writer)
    assert writer.told == [wire.Recorded(29)]


def test_not_while_the_journal_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, writer = JournalWriter(tmp_path / "events.jsonl"), NotingRank(0)
    recorder = CheckpointAck(journal)
    recorder.add(h.checkpoint(29, 1.0))
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        journal.append([h.checkpoint(29, 1.0)])
    recorder.report_covered(29, writer)
    assert writer.told == []
    journal.flush()
    recorder.report_covered(29, writer)
    assert writer.told == [wire.Recorded(29)]
