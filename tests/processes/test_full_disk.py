"""A disk that is full: training goes on and can be ended, the view says why, and nothing is missing afterwards."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.kit.disks import tmpfs
from tests.kit.harness import MLP, Gate, Watched, launched
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import Alert, LogLine, StopRequested
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
SILENT = msgspec.structs.replace(MLP, checkpoint_every=0, eval_every=0, epochs=20_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, empty."""
    with tmpfs(tmp_path / "small", "64k") as place:
        yield place


def enlarge(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def goes_on(run: Watched) -> None:
    """Every rank uses the processor further: the journal cannot say so now."""
    pids = [run.pid(rank) for rank in range(2)]
    before = [cpu_seconds(pid) for pid in pids]
    wait_for(lambda: all(cpu_seconds(pid) > was + 0.3 for pid, was in zip(pids, before, strict=True)))


def sees(run: Watched) -> str:
    """What the dashboard's strip says of the run."""
    feed, state = JournalFeed(run.run, poll_s=0.01, live_check_s=0.01), RunState(run.run.run_id)
    feed.start()
    try:
        wait_for(lambda: feed.trouble)
        for event in feed.take(100_000):
            apply(state, event)
        state.note_trouble(feed.trouble)
    finally:
        feed.close()
    found = headline(state)
    assert found is not None
    assert found.severity == "error"
    return found.text


def check_complete(run: Watched, why: str) -> None:
    """The journal is whole, and says what was."""
    end = run.end()
    assert end.status == "stopped"
    for rank in range(2):
        steps = run.steps_of(rank)
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= end.summary.steps
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))
    (told,) = [alert for alert in run.of(Alert) if alert.kind == "journal"]
    assert why in told.text
    assert "it now has everything reported meanwhile" in told.text
    assert run.events[-1] is end
    run.wait_gone()
    assert summarise(run.run).status == "stopped"
    print(f"\n{told.text}: {end.summary.steps:,} steps of each rank, {len(run.events):,} events, none missing")


@pytest.mark.nightly
def test_a_disk_that_takes_no_file_more(tmp_path: Path, fake: Callable[..., None]) -> None:
    """Neither a command's nor a checkpoint's: the one comes as a signal, the other not at all."""
    fake()
    with tmpfs(tmp_path / "small", "24m,nr_inodes=100") as place, launched(SILENT, place) as run:
        run.at_step(1)
        with suppress(OSError):
            while True:
                os.close(tempfile.mkstemp(dir=place)[0])
        by_signal = "(No space left on device): sent {} to its supervisor, pid " + str(run.started.pid)
        asked = subprocess.run([*TUIAPP, "checkpoint", run.run.path], capture_output=True, text=True, timeout=100)
        assert by_signal.format("SIGUSR1") in asked.stderr
        assert "was not saved: No space left on device" in asked.stderr
        assert asked.returncode == 1
        stopped = subprocess.run([*TUIAPP, "stop", run.run.path], capture_output=True, text=True, timeout=100)
        assert by_signal.format("SIGTERM") in stopped.stderr
        assert stopped.returncode == 0
        assert run.end().status == "stopped"
        assert [request.by for request in run.of(StopRequested)] == ["SIGTERM"]
        run.wait_gone()


def test_a_disk_of_64_kib(
    small_disk: Path, tmp_path: Path, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A rank that writes to its log meets the full disk as well.
    fake("talk-gated:1:20", step=0.001)
    gate = Gate(tmp_path / "gate")
    monkeypatch.setenv("TUIAPP_TEST_GATE", str(gate.path))
    with launched(SILENT, small_disk) as run:
        # Who trains, and a step of theirs, are on record before there is no room for it.
        run.at_step(1)
        gate.open()
        wait_for(lambda: run.run.lock_note().trouble)
        goes_on(run)
        said = sees(run)
        print(f"\n{said}")
        assert "No space left on device. Training continues" in said
        last = run.steps_of(0)[-1]
        enlarge(small_disk)
        run.at_step(last + 200)
        wait_for(lambda: not run.run.lock_note().trouble)
        mailbox.send(run.run.commands, "stop-now")
        check_complete(run, "No space left on device")
        assert [line.text.split()[1] for line in run.of(LogLine) if line.rank == 1 and line.stream == "stdout"]
        run.wait_gone()


@pytest.mark.by_hand
@pytest.mark.parametrize("ends", ["stopped while it is full", "stopped afterwards"])
def test_a_limit_on_the_size_of_files(runs_dir: Path, ends: str) -> None:
    with launched(SILENT, runs_dir) as run:
        run.at_step(20)
        pid = run.started.pid
        limit = resource.prlimit(pid, resource.RLIMIT_FSIZE, (run.run.journal.stat().st_size, resource.RLIM_INFINITY))
        wait_for(lambda: run.run.lock_note().trouble)
        goes_on(run)
        assert "File too large" in sees(run)
        last = run.steps_of(0)[-1]
        if ends == "stopped while it is full":
            mailbox.send(run.run.commands, "stop-now")
            # Its ranks end; it waits for room to say so, and is live as long.
            wait_for(lambda: len(run.processes()) <= 2)
            assert run.run.is_live()
            assert not run.of(StopRequested)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        if ends == "stopped afterwards":
            run.at_step(last + 200)
            mailbox.send(run.run.commands, "stop-now")
        check_complete(run, "File too large")
        run.wait_gone()


@pytest.mark.nightly
def test_a_run_that_cannot_say_that_it_ended_is_given_up_on_request(runs_dir: Path) -> None:
    with launched(SILENT, runs_dir) as run:
        run.at_step(20)
        size = run.run.journal.stat().st_size
        resource.prlimit(run.started.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        wait_for(lambda: run.run.lock_note().trouble)
        mailbox.send(run.run.commands, "stop-now")
        wait_for(lambda: run.run.lock_note().over)
        asked = subprocess.run([*TUIAPP, "checkpoint", run.run.path], capture_output=True, text=True, timeout=100)
        assert (asked.returncode, asked.stdout) == (1, "")
        assert "File too large. The run has ended and waits for disk space" in asked.stderr
        assert "the run cannot report a checkpoint" in asked.stderr
        mailbox.send(run.run.commands, "stop-now")
        run.wait_gone()
        assert summarise(run.run).status == "lost"
