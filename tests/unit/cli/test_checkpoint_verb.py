"""`tuiapp checkpoint`, `profile` and `stop`, on recorded run directories whose supervisor is stood in for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.command_line import Command
from tests.kit.recorded import record
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, CheckpointRequested, Event, RunEnded, StepMemory
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


def test_the_profile_of_all_ranks(tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    stand_in = Run(run, monkeypatch, *h.profiles())
    done = tuiapp("profile", "--steps", "10")
    stand_in.close()
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "steps 120 to 129 · 100 ms a step, with the profiler's own cost"
    assert lines[3].split()[:11] == ["0", "60", "%", "15", "%", "5", "%", "0", "%", "20", "%"]
    assert lines[4].split()[:3] == ["1", "50", "%"]
    assert lines[4].count("█") == round(0.5 * len(lines[4].split()[-1]))
    assert "31.0 ms   31.0 %        3  aten::convolution_backward" in done.out
    # Of an ended run, and as plain values.
    done = tuiapp("profile", "--json")
    assert [(one["rank"], one["step"], one["spent"]["copies"]) for one in json.loads(done.out)] == [
        (0, 120, 0.05),
        (1, 120, 0.05),
    ]


def test_what_a_compiled_step_takes(tuiapp: Command, runs_dir: Path) -> None:
    memory = StepMemory(arguments=300 << 20, outputs=101 << 20, aliased=100 << 20, temporary=200 << 20)
    found = [
        msgspec.structs.replace(one, peak_bytes=None, process_peak_bytes=peak << 20, step_memory=memory)
        for one, peak in zip(h.profiles(), (600, 700), strict=True)
    ]
    record(runs_dir, h.RUN_ID, [*h.running(), *found, h.ended("completed", 11)])
    lines = tuiapp("profile").out.splitlines()
    place = next(number for number, line in enumerate(lines) if "compiled step" in line)
    assert lines[place : place + 3] == [
        "501 MiB of each device for the compiled step:",
        "  arguments 300 MiB · new outputs 1.00 MiB · temporary 200 MiB",
        "700 MiB at most since the run's start, on rank 1",
    ]
    facts = json.loads(tuiapp("profile", "--json").out)
    assert [(one["step_memory"]["total"] >> 20, one["process_peak_bytes"] >> 20) for one in facts] == [
        (501, 600),
        (501, 700),
    ]


def test_a_profiler_that_fails_on_every_rank(tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    alerts = [
        Alert(kind="profile", rank=rank, step=120, text="the profiler did not start", **h.at(11)) for rank in (0, 1)
    ]
    stand_in = Run(run, monkeypatch, *alerts)
    done = tuiapp("profile")
    stand_in.close()
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("the profiler did not start\n")
