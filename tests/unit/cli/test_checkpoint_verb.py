"""`tuiapp checkpoint` and `stop`, on recorded run directories whose supervisor is stood in for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.command_line import Command
from tests.kit.recorded import record
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import CheckpointRequested, Event, RunEnded
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.rundir import RunDir


class Run:
    """Stands in for a supervisor: holds the lock, and answers a command by writing events."""

    def __init__(self, run: RunDir, monkeypatch: pytest.MonkeyPatch, *events: Event, trouble: str = "") -> None:
        self._run, self._events = run, events
        self._lock: int | None = run.take_lock()
        write_note(self._lock, LockNote(trouble=trouble))
        self._send = sidecars.send_command
        monkeypatch.setattr(sidecars, "send_command", self._answer)

    def _answer(self, commands: Path, command: sidecars.Command, steps: int = 0) -> None:
        self._send(commands, command, steps)
        assert sidecars.take_commands(commands) == [f"{command}={steps}" if steps else command]
        writer = JournalWriter(self._run.journal)
        writer.append(self._events)
        writer.close()
        if any(isinstance(event, RunEnded) for event in self._events):
            self.close()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def test_checkpoint_waits_for_the_one_it_asked_for(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    asked = CheckpointRequested(by="command", **h.at(10))
    # One that was being written when the request came, and the one that was asked for.
    stand_in = Run(run, monkeypatch, asked, h.checkpoint(116, 10.01), h.checkpoint(121, 10.2))
    done = tuiapp("checkpoint", "latest")
    stand_in.close()
    assert (done.code, done.out) == (0, f"{run.checkpoints}/step-00000121\n")


def test_checkpoint_of_a_run_that_ends_instead(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    Run(run, monkeypatch, h.ended("failed", 11, reason="rank 0 failed"))
    done = tuiapp("checkpoint", "latest")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith(f"tuiapp: {h.RUN_ID} ended before it saved one: failed.\n")
