"""Nothing holds up or silences a rank's training: a pipe nobody reads, a reader gone, a framework that fails."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.kit.rank_pipe import DEADLINE_S, Pipe
from tuiapp.trainers.contract.events import Alert, LogLine, Phase
from tuiapp.trainers.rank import reporter as reporter_module


def test_a_conversion_that_fails_takes_nothing_else_along(pipe: Pipe) -> None:
    def convert(losses: list[Any]) -> list[float]:
        if None in losses:
            raise RuntimeError("device lost")
        return losses

    pipe.report.convert = convert
    with pipe.report._writing:
        # The reporter's thread waits for its turn to write meanwhile, so that what follows comes to it in one piece.
        pipe.report.send(Alert(kind="first", text=""))
        deadline = time.monotonic() + DEADLINE_S
        while pipe.report._backlog:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        pipe.report.step(1, 1.0, 24, 0.1)
        pipe.report.evaluation(1, 100, {"loss": 2.0, "accuracy": 0.5})
        pipe.report.step(2, None, 24, 0.1)
        pipe.report.phase("checkpointing")
    pipe.close()
    assert pipe.steps() == [1]
    assert [one.accuracy for one in pipe.evaluations()] == [0.5]
    assert [phase.phase for phase in pipe.of(Phase)] == ["checkpointing"]


def test_a_pipe_that_nobody_reads_never_holds_up_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter_module, "BACKLOG_STEPS", 1000)
    pipe = Pipe()
    # More than a pipe holds: the reporter's thread is stuck in its write from here on.
    full = LogLine(rank=0, stream="stdout", text="x" * 200_000)
    pipe.report._backlog.append(full)
    deadline = time.monotonic() + DEADLINE_S
    while pipe.report._backlog:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    longest = 0.0
    for step in range(1, 5001):
        began = time.perf_counter()
        pipe.report.step(step, 1.0, 24, 0.1)
        longest = max(longest, time.perf_counter() - began)
    assert longest < 5
    # Somebody reads again: what was kept comes, what was not is counted, and later steps start an event of their own.
    pipe.wait(lambda: 1000 in pipe.steps())
    pipe.wait(lambda: bool(pipe.of(Alert)))
    pipe.report.step(5001, 1.0, 24, 0.1)
    pipe.close()
    assert pipe.of(LogLine) == [full]
    assert pipe.steps() == [*range(1, 1001), 5001]
    (alert,) = pipe.of(Alert)
    assert (alert.kind, alert.text) == (
        "backlog",
        "rank 0: 4,000 steps were not recorded: the supervisor did not read them in time",
    )


def test_a_rank_ends_though_nobody_reads(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter_module, "CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(reporter_module, "UNREAD_TIMEOUT_S", 0.1)
    pipe.report._backlog.append(LogLine(rank=0, stream="stdout", text="x" * 200_000))
    began = time.monotonic()
    pipe.report.close()
    assert 0.1 <= time.monotonic() - began < DEADLINE_S
    os.close(pipe.read_fd)


def test_a_reader_that_is_gone_is_no_error(pipe: Pipe, capfd: pytest.CaptureFixture[str]) -> None:
    os.close(pipe.read_fd)
    began = time.monotonic()
    for step in range(1, 100):
        pipe.report.step(step, 1.0, 24, 0.1)
    pipe.report.close()
    assert time.monotonic() - began < DEADLINE_S
    assert capfd.readouterr().err == ""
