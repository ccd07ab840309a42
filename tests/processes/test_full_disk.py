"""A disk that is full: training goes on and can be ended, the view says why, and nothing is missing afterwards."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kit.disks import tmpfs
from tests.kit.harness import MLP, Gate, Watched, launched
from tests.kit.waiting import wait_until
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, LogLine
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


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def goes_on(run: Watched) -> None:
    """Every rank uses the processor further: the journal cannot say so now."""
    pids = [run.pid(rank) for rank in range(2)]
    before = [cpu_seconds(pid) for pid in pids]
    wait_until(lambda: all(cpu_seconds(pid) > was + 0.3 for pid, was in zip(pids, before, strict=True)))


def sees(run: Watched) -> str:
    """What the dashboard's strip says of the run."""
    feed, state = JournalFeed(run.run, poll_s=0.01, live_check_s=0.01), RunState(run.run.run_id)
    feed.start()
    try:
        wait_until(lambda: feed.trouble)
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
        wait_until(lambda: run.run.lock_note().trouble)
        goes_on(run)
        said = sees(run)
        print(f"\n{said}")
        assert "No space left on device. Training continues" in said
        last = run.steps_of(0)[-1]
        enlarge(small_disk)
        run.at_step(last + 200)
        wait_until(lambda: not run.run.lock_note().trouble)
        sidecars.send_command(run.run.commands, "stop-now")
        check_complete(run, "No space left on device")
        assert [line.text.split()[1] for line in run.of(LogLine) if line.rank == 1 and line.stream == "stdout"]
        run.wait_gone()


@pytest.mark.nightly
def test_a_run_that_cannot_say_that_it_ended_is_given_up_on_request(runs_dir: Path) -> None:
    with launched(SILENT, runs_dir) as run:
        run.at_step(20)
        size = run.run.journal.stat().st_size
        resource.prlimit(run.started.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        wait_until(lambda: run.run.lock_note().trouble)
        sidecars.send_command(run.run.commands, "stop-now")
        wait_until(lambda: run.run.lock_note().over)
        asked = subprocess.run([*TUIAPP, "checkpoint", run.run.path], capture_output=True, text=True, timeout=100)
        assert (asked.returncode, asked.stdout) == (1, "")
        assert "File too large. The run has ended and waits for disk space" in asked.stderr
        assert "the run cannot report a checkpoint" in asked.stderr
        sidecars.send_command(run.run.commands, "stop-now")
        run.wait_gone()
        assert summarise(run.run).status == "lost"
