"""Whether a run goes on, and the processes of this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import NamedTuple

import psutil
import pytest

from tests.unit.contract.test_rundir import holder
from tuiapp.library.liveness import AWAY_S, LivenessProbe
from tuiapp.library.processes import ProcessReader
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.process_identity import identity, machine
from tuiapp.trainers.contract.rundir import HeldDirectory, RunDir


class Clock:
    """Stands still unless a test moves it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Held(NamedTuple):
    """A live run, and the process that has its lock."""

    run: RunDir
    supervisor: psutil.Process

    def sign(self, where: str) -> None:
        """Note in the lock who holds it."""
        fd = os.open(self.run.lock, os.O_RDWR)
        write_note(fd, LockNote(attempt=1, supervisor=identity(self.supervisor.pid), machine=where))
        os.close(fd)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    run = RunDir(tmp_path / "runs" / "20261120T101500-torch-ddp-mlp-3fa1")
    run.path.mkdir(parents=True)
    with holder(run) as process:
        yield Held(run, psutil.Process(process.pid))


def test_a_lock_that_is_free_tells_at_once_that_it_is_over(held: Held) -> None:
    with LivenessProbe(held.run) as pulse:
        assert pulse.is_alive()
        held.supervisor.kill()
        held.supervisor.wait()
        assert not pulse.is_alive()
        assert (pulse.unreachable, pulse.trouble) == (False, "")


def test_as_long_as_the_process_lives_a_directory_is_waited_for(held: Held) -> None:
    held.sign(machine())
    clock = Clock()
    with LivenessProbe(held.run, clock) as pulse:
        aside = held.run.path.rename(held.run.path.with_name("aside"))
        for _ in range(3):
            clock.now += 10 * AWAY_S
            assert pulse.is_alive()
            assert (pulse.unreachable, "still alive" in pulse.trouble) == (True, True)
        held.supervisor.kill()
        held.supervisor.wait()
        # How it ended may stand in there.
        assert pulse.is_alive()
        clock.now += AWAY_S - 1
        assert pulse.is_alive()
        clock.now += 1
        assert not pulse.is_alive()
        aside.rename(held.run.path)
        assert not pulse.is_alive()
        assert not pulse.unreachable


@pytest.mark.parametrize("where", ["", "another machine"])
def test_where_nothing_is_known_of_the_process_patience_ends(held: Held, where: str) -> None:
    held.sign(where)
    clock = Clock()
    with LivenessProbe(held.run, clock) as pulse:
        aside = held.run.path.with_name("aside")
        for _ in range(2):
            held.run.path.rename(aside)
            assert pulse.is_alive()
            clock.now += AWAY_S - 1
            assert pulse.is_alive()
            assert "waiting for it" in pulse.trouble
            aside.rename(held.run.path)
            clock.now += 2
            assert pulse.is_alive()
            assert pulse.trouble == ""
        held.run.path.rename(aside)
        assert pulse.is_alive()
        clock.now += AWAY_S
        assert not pulse.is_alive()


def test_a_deleted_directory_is_not_waited_for(held: Held) -> None:
    held.sign(machine())
    with LivenessProbe(held.run) as pulse:
        shutil.rmtree(held.run.path)
        assert not pulse.is_alive()


def test_a_held_directory_is_deleted_or_not(tmp_path: Path) -> None:
    place = tmp_path / "place"
    assert not HeldDirectory(place).is_deleted()
    place.mkdir()
    directory = HeldDirectory(place)
    aside = place.rename(tmp_path / "aside")
    assert not directory.is_deleted()
    aside.rmdir()
    assert directory.is_deleted()
    directory.close()


BUSY = "import sys, time; print(flush=True)\nwhile True: sys.stdin.closed"


def test_a_busy_process_is_seen_with_its_user_command_and_use() -> None:
    reader = ProcessReader()
    with Popen([sys.executable, "-c", BUSY, "an argument"], stdout=PIPE, stdin=PIPE) as busy:
        try:
            assert busy.stdout
            busy.stdout.readline()
            first = reader.read()[busy.pid]
            assert first.cpu_percent is None
            assert first.parent == os.getpid()
            assert first.user == getpass.getuser()
            assert first.memory_bytes > 1 << 20
            assert first.command.startswith(os.path.basename(sys.executable))
            assert "an argument" in first.command
            while not reader.read()[busy.pid].cpu_percent:
                pass
        finally:
            busy.kill()
    assert busy.pid not in reader.read()
