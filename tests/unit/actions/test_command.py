"""Asking a run whose mailbox cannot be written: a real process gets the signal, and no other does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuiapp.actions.action import ActionError
from tuiapp.actions.command import send
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.process_identity import identity, machine
from tuiapp.trainers.contract.rundir import RunDir

NAMES_SIGNALS = """
import signal
signals = {signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
while True:
    print(signal.Signals(signal.sigwait(signals)).name, flush=True)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """A live run without a mailbox."""
    run = RunDir(tmp_path)
    lock = run.take_lock()
    yield run
    os.close(lock)


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[str]]:
    """Says which signals it gets."""
    with subprocess.Popen([sys.executable, "-c", NAMES_SIGNALS], stdout=subprocess.PIPE, text=True) as process:
        assert heard(process) == "ready"
        yield process
        process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def note(run: RunDir, **what: str) -> None:
    fd = os.open(run.lock, os.O_RDWR)
    write_note(fd, LockNote(**what))  # type: ignore[arg-type]
    os.close(fd)


def test_the_mailbox_comes_first(run: RunDir) -> None:
    run.commands.mkdir()
    assert send(run, "stop") == ""
    assert sidecars.take_commands(run.commands) == ["stop"]


def test_a_signal_instead(run: RunDir, supervisor: subprocess.Popen[str]) -> None:
    note(run, supervisor=identity(supervisor.pid), machine=machine(), host="here")
    commands: dict[sidecars.Command, str] = {"checkpoint": "SIGUSR1", "stop": "SIGTERM", "stop-now": "SIGQUIT"}
    for command, name in commands.items():
        said = send(run, command)
        assert said.startswith(
            f"{run.commands} cannot be written (No such file or directory): sent {name} to its super"
        )
        assert ("a second one stops the run at once" in said) == (command == "stop")
        assert heard(supervisor) == name


def test_what_blocks_it(run: RunDir, supervisor: subprocess.Popen[str]) -> None:
    who, here = identity(supervisor.pid), machine()
    later = f"{supervisor.pid}:1"
    for what, words in {
        "": "its lock file does not say which process to signal",
        f"{who} elsewhere": "a signal reaches its supervisor only from node7, where it runs",
        f"{later} {here}": f"its supervisor, pid {supervisor.pid}, is gone",
        f"none {here}": "is gone",
    }.items():
        known_as, _, where = what.partition(" ")
        note(run, supervisor=known_as, machine=where, host="node7")
        with pytest.raises(ActionError, match=words):
            send(run, "stop-now")
    note(run, supervisor=who, machine=here)
    send(run, "checkpoint")
    # Nothing came before it.
    assert heard(supervisor) == "SIGUSR1"


def test_a_run_that_is_over(tmp_path: Path) -> None:
    with pytest.raises(ActionError, match="its supervisor is not running"):
        send(RunDir(tmp_path), "stop")


def test_a_run_out_of_reach_is_asked_by_what_its_lock_said_last(
    supervisor: subprocess.Popen[str], tmp_path: Path
) -> None:
    known = LockNote(supervisor=identity(supervisor.pid), machine=machine())
    away = RunDir(tmp_path / "not here")
    with pytest.raises(ActionError, match="its supervisor is not running"):
        send(away, "stop")
    assert "sent SIGTERM" in send(away, "stop", known)
    assert heard(supervisor) == "SIGTERM"
    supervisor.kill()
    supervisor.wait()
    with pytest.raises(ActionError, match="is gone"):
        send(away, "stop", known)
