"""What a stop asks, and to whom it goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.recorded import record
from tuiapp.actions import stop
from tuiapp.actions.report import refusal as no_report
from tuiapp.actions.report import suggested
from tuiapp.actions.stop import Stoppable, Waits
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, take_commands, write_about
from tuiapp.trainers.state.summary import summarise

RUN = RunDir(Path("/runs/20261120T101500-torch-ddp-net-3fa1"))


def one(grace_s: float | None = None, waits: Waits = "", alone: str = "") -> Stoppable:
    return Stoppable(RUN, "wide", grace_s, waits, alone)


@pytest.mark.parametrize(
    ("runs", "again", "title", "words", "answers"),
    [
        ([one()], False, "Stop this run?", "saves a checkpoint after the step", ["stop", "run-on"]),
        ([one(alone="Of node 1.")], False, "Stop this run?", "from there. Of node 1.", ["stop", "run-on"]),
        ([one()], True, "Stop now?", "without another checkpoint", ["wait", "stop-now"]),
        ([one(90.0)], False, "Stop this script?", "Otherwise it gets SIGTERM, and SIGKILL", ["stop", "run-on"]),
        ([one(90.0)], True, "Stop now?", "with SIGKILL after two seconds", ["wait", "stop-now"]),
        ([one(waits="queue")], False, "Cancel this run?", "It leaves the queue", ["stop", "run-on"]),
        ([one(waits="Slurm")], False, "Cancel its job?", "Slurm job is cancelled", ["stop", "run-on"]),
        ([one(), one()], False, "Stop 2 runs?", "Each saves a checkpoint", ["stop", "run-on"]),
        ([one(), one(90.0)], False, "Stop 2 runs?", "does not ask should_stop() gets SIGTERM", ["stop", "run-on"]),
        ([one(), one(waits="queue")], False, "Stop 2 runs?", "that is queued does not start", ["stop", "run-on"]),
        ([one()] * 8, True, "Stop 8 runs now?", "and 2 more\n \nThey are stopping", ["wait", "stop-now"]),
    ],
)
def test_what_is_asked(runs: list[Stoppable], again: bool, title: str, words: str, answers: list[str]) -> None:
    question = stop.question(runs, again=again)
    assert (question.title, [answer for answer, _, _ in question.answers]) == (title, answers)
    assert words in question.text
    assert f"The rest of the {len(runs) + 2} are over" in stop.question(runs, again=again, others=2).text


def test_one_that_cannot_be_asked_does_not_keep_the_others(tmp_path: Path) -> None:
    runs = [record(tmp_path, f"20261120T10150{n}-torch-ddp-net-3fa1", h.running()) for n in range(3)]
    locks = [run.take_lock() for run in runs]
    runs[0].commands.rmdir()
    outcome = stop.do(runs, now=True)
    assert outcome.done == runs[1:]
    assert outcome.of("information") == ["Asked 2 runs to stop now."]
    assert f"Cannot send the command to {runs[0].run_id}" in outcome.of("error")[0]
    assert [take_commands(run.commands) for run in runs[1:]] == [["stop-now"]] * 2
    for lock in locks:
        os.close(lock)


def test_a_report_is_called_after_its_run_or_group(tmp_path: Path) -> None:
    runs = [record(tmp_path, f"20261120T10150{n}-torch-ddp-net-3fa1", []) for n in range(2)]
    assert suggested([summarise(runs[0])]) == runs[0].run_id
    assert suggested([*map(summarise, runs)]) == "report"
    for run in runs:
        write_about(run, About(group="sweep/1"))
    assert suggested([*map(summarise, runs)]) == "report-sweep-1"
    assert (no_report(8), "8 runs at most, not 9" in no_report(9)) == ("", True)
