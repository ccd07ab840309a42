"""`tuiapp checkpoint` and `stop`, on recorded run directories whose supervisor is stood in for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.command_line import Command
from tests.kit.recorded import record
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import CheckpointRequested, Event, RunEnded
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.lock import LockNote, write_note
from tuiapp.trainers.contract.rundir import RunDir


class Run:
    """Stands in for a supervisor: holds the lock, and answers a command by writing events."""

    def __init__(
        self,
        run: RunDir,
        monkeypatch: pytest.MonkeyPatch,
        *events: Event,
        trouble: str = "",
    ) -> None:
        self._run, self._events = run, events
        self._lock: int | None = run.take_lock()
        write_note(self._lock, LockNote(trouble=trouble))
        self._send = mailbox.send
        monkeypatch.setattr(mailbox, "send", self._answer)

    def _answer(self, commands: Path, command: mailbox.Command, steps: int = 0) -> None:
        self._send(commands, command, steps)
        assert mailbox.take(commands) == [f"{command}={steps}" if steps else command]
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


def test_checkpoint_of_a_run_whose_journal_is_full(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    trouble = "the journal cannot be written: No space left on device. Training continues"
    stand_in = Run(run, monkeypatch, trouble=trouble)
    done = tuiapp("checkpoint", "latest")
    stand_in.close()
    assert (done.code, done.out) == (1, "")
    assert f"tuiapp: {trouble}\n" in done.err
    assert f"the run cannot report a checkpoint; if it saves one, it is in {run.checkpoints}.\n" in done.err


@pytest.mark.parametrize(("verb", "words"), [("checkpoint", "may still save it"), ("stop", "the run still stops")])
def test_ctrl_c_ends_the_wait(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch, verb: str, words: str
) -> None:
    run = record(runs_dir, h.RUN_ID, h.running())
    stand_in = Run(run, monkeypatch)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    done = tuiapp(verb, "latest")
    stand_in.close()
    assert (done.code, done.out) == (130, "")
    assert words in done.err.splitlines()[-1]


@pytest.mark.parametrize("verb", ["checkpoint", "stop"])
def test_where_the_latest_run_has_ended_the_live_one_is_named(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    live = Run(record(runs_dir, h.RUN_ID, h.running()), monkeypatch)
    ended = record(runs_dir, "20261120T101600-torch-ddp-net-0001", h.completed())
    named = f"tuiapp: {ended.run_id} is not running: completed. The newest live run is {h.RUN_ID}.\n"
    assert tuiapp(verb, "latest").err == named
    assert "live" not in tuiapp(verb, ended.run_id).err
    live.close()
    assert tuiapp(verb, "latest").err == f"tuiapp: {ended.run_id} is not running: completed.\n"


def test_a_stop_of_several_says_how_many_had_ended(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, live = (f"20261120T10150{n}-torch-ddp-net-3fa{n}" for n in range(2))
    record(runs_dir, ended, h.completed())
    run = record(runs_dir, live, h.running())
    Run(run, monkeypatch, h.ended("stopped", 11, reason="stopped by command"))
    done = tuiapp("stop", ended, live, "--json")
    assert (done.code, [one["run"] for one in json.loads(done.out)]) == (0, [live])
    assert "tuiapp: 1 of these 2 runs had ended\n" in done.err
    assert f"{live}: stopped: stopped by command" in done.err
    assert tuiapp("stop", ended, live).err == "tuiapp: None of these 2 runs is running.\n"
