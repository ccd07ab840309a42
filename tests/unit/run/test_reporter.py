"""What a rank tells over a real pipe; nothing holds up or silences its training."""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

import pytest

from tests.kit.rank_pipe import DEADLINE_S, Pipe
from tests.kit.reported import values
from tuiapp.trainers.contract.events import Alert, FrameworkMemory, LogLine, Metrics, Phase, RankStarted, StopRequested
from tuiapp.trainers.contract.metrics import DATA_WAIT, EXAMPLES, LEARNING_RATE, LOSS, STEP_TIME
from tuiapp.trainers.rank import reporter as reporter_module
from tuiapp.trainers.run import wire


def test_steps_come_in_batches_and_in_order(pipe: Pipe) -> None:
    pipe.report.phase("training")
    with pipe.held():
        for step in range(1, 41):
            pipe.report.step(step, 1 / step, 24, 0.001 * step)
    pipe.report.evaluation(40, 360, {"loss": 0.5, "accuracy": 0.9})
    pipe.report.phase("done")
    pipe.close()
    first, last = pipe.of(Phase)
    assert (first.phase, last.phase) == ("training", "done")
    assert pipe.messages[0] is first
    assert pipe.messages[-1] is last
    assert pipe.steps() == list(range(1, 41))
    assert len(pipe.reports()) <= 3
    assert pipe.losses() == [1 / step for step in range(1, 41)]
    assert values(pipe.messages, LEARNING_RATE) == [0.001 * step for step in range(1, 41)]
    assert all(seconds is not None and seconds >= 0 for seconds in values(pipe.messages, STEP_TIME))
    (evaluation,) = pipe.evaluations()
    assert (evaluation.step, evaluation.loss, evaluation.accuracy, evaluation.examples) == (40, 0.5, 0.9, 360)
    # Its time is when it happened, however late it is sent.
    assert pipe.of(Metrics)[-1].mono <= last.mono


def test_the_time_of_a_step_and_its_wait_for_a_batch(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(reporter_module, "perf_counter", lambda: now[0])
    pipe.report.phase("training")
    now[0] = 10.0
    pipe.report.step(1, 1.0, 24, 0.1, waited_s=2.0)
    now[0] = 15.0
    # A checkpoint here: its time is no step's.
    pipe.report.phase("training")
    now[0] = 16.0
    pipe.report.step(2, 1.0, 24, 0.1)
    now[0] = 20.0
    pipe.report.restart_clock()
    now[0] = 23.0
    pipe.report.step(3, 1.0, 24, 0.1, waited_s=0.5)
    pipe.close()
    assert values(pipe.messages, STEP_TIME) == [10.0, 1.0, 3.0]
    assert values(pipe.messages, DATA_WAIT) == [2.0, 0.0, 0.5]


def test_losses_are_converted_many_at_a_time_and_off_the_training_thread(pipe: Pipe) -> None:
    calls: list[tuple[int, str]] = []

    def convert(losses: list[Any]) -> list[float]:
        calls.append((len(losses), threading.current_thread().name))
        return [float(loss) for loss in losses]

    pipe.report.convert = convert
    with pipe.held():
        for step in range(1, 101):
            pipe.report.step(step, "0.5", 24, 0.1)
    pipe.close()
    assert sum(count for count, _ in calls) == 100
    assert len(calls) <= 3
    assert {name for _, name in calls} == {"reporter"}


def test_faster_than_the_journal_keeps(pipe: Pipe) -> None:
    # All within a moment: the longer it takes the more may be kept.
    with pipe.held():
        for step in range(1, 20_001):
            pipe.report.step(step, float(step), 24, 0.1)
    pipe.close()
    assert pipe.steps() == list(range(1, 20_001))
    assert len(pipe.losses()) < 300
    last = pipe.reports()[-1]
    assert last.highs is not None
    assert last.highs[LOSS][-1] == 20_000.0
    assert last.highs.keys() == {LOSS}


@pytest.mark.parametrize(("policy", "stops"), [("warn", 0), ("stop", 1)])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_loss_that_is_not_finite_is_told_once(policy: str, stops: int, bad: float) -> None:
    pipe = Pipe(rank=2, nan_policy=policy)
    for step in range(1, 6):
        pipe.report.step(step, 1.0 if step < 3 else bad, 24, 0.1)
    pipe.wait(lambda: 5 in pipe.steps() and bool(pipe.of(Alert)))
    pipe.report.step(6, bad, 24, 0.1)
    pipe.close()
    (alert,) = pipe.of(Alert)
    assert (alert.kind, alert.severity, alert.rank, alert.step) == ("nan", "error", 2, 3)
    assert f"the loss is {bad} at step 3" in alert.text
    assert [request.by for request in pipe.of(StopRequested)] == ["nan_policy"] * stops
    assert pipe.losses() == [1.0, 1.0, *[None if math.isnan(bad) else bad] * 4]


def test_only_rank_0_tells_the_evaluation() -> None:
    pipe = Pipe(rank=1)
    pipe.report.evaluation(1, 360, {"loss": math.nan, "accuracy": 0.5})
    pipe.close()
    assert pipe.evaluations() == []


def test_one_process_speaks_for_each_of_its_devices() -> None:
    pipe = Pipe(speaks_for=range(3))
    pipe.report.convert = lambda losses: losses
    for number in range(3):
        pipe.report.rank_started(f"cpu:{number}", number=number)
    pipe.report.phase("training")
    for step in (1, 2, 3):
        pipe.report.step(step, [1.0 * step, 10.0 * step, math.nan if step > 1 else 5.0], 16, 0.1)
    pipe.report.evaluation(3, 360, {"loss": 0.5, "accuracy": 0.9})
    pipe.close()
    assert [(one.rank, one.device, one.pid) for one in pipe.of(RankStarted)] == [
        (number, f"cpu:{number}", os.getpid()) for number in range(3)
    ]
    assert [(one.rank, one.phase) for one in pipe.of(Phase)] == [(number, "training") for number in range(3)]
    assert {number: pipe.losses(number) for number in range(3)} == {
        0: [1.0, 2.0, 3.0],
        1: [10.0, 20.0, 30.0],
        2: [5.0, None, None],
    }
    assert values(pipe.messages, EXAMPLES) == [16.0] * 9
    # It waits for its batches once, whatever the number of its devices.
    assert [DATA_WAIT in one.values for one in pipe.reports()] == [one.rank == 0 for one in pipe.reports()]
    (alert,) = pipe.of(Alert)
    assert (alert.rank, alert.step) == (2, 2)
    assert len(pipe.evaluations()) == 1


def test_a_vote_holds_training_and_says_where_it_is(pipe: Pipe) -> None:
    assert not pipe.report.stop_before(1)
    assert not pipe.report.stop_before(2)
    pipe.report.vote(3)
    pipe.wait(lambda: bool(pipe.of(wire.Vote)))
    assert pipe.of(wire.Vote) == [wire.Vote(0, 2, 3)]
    pipe.gate.decide(3)
    assert not pipe.report.stop_before(3)
    assert pipe.report.stop_before(4)
    pipe.close()


def test_what_the_framework_holds_is_told_off_the_training_thread(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter_module, "MEMORY_INTERVAL_S", 0.01)
    threads: list[str] = []

    def read() -> list[FrameworkMemory]:
        threads.append(threading.current_thread().name)
        return [FrameworkMemory(rank=rank, used_bytes=5 + rank) for rank in range(2)]

    pipe.report.memory = read
    pipe.wait(lambda: len(pipe.of(FrameworkMemory)) >= 4)
    pipe.close()
    assert {(one.rank, one.used_bytes) for one in pipe.of(FrameworkMemory)} == {(0, 5), (1, 6)}
    assert set(threads) == {"reporter"}


def test_values_of_any_name_at_a_step(pipe: Pipe) -> None:
    with pipe.held():
        # The reporter's thread is held by this one.
        pipe.report.step(1, 0.5, 8, 0.1)
        for step in (2, 3, 4):
            pipe.report.metrics(step, {"val/ppl": "12.5", "lr": step})
        pipe.report.metrics(5, {"val/ppl": math.inf})
        pipe.report.metrics(9, {"val/ppl": 1})
    pipe.close()
    named = [event for event in pipe.of(Metrics) if STEP_TIME not in event.values]
    entries = [
        (event.rank, event.first_step + place, value)
        for event in named
        for place, value in enumerate(event.values["val/ppl"])
    ]
    assert entries == [(0, 2, 12.5), (0, 3, 12.5), (0, 4, 12.5), (0, 5, math.inf), (0, 9, 1.0)]
    assert values(named, "lr") == [2.0, 3.0, 4.0]
    assert len(named) >= 3


def test_a_value_that_is_no_number_takes_nothing_else_along(pipe: Pipe, capfd: pytest.CaptureFixture[str]) -> None:
    pipe.report.metrics(1, {"a": "much"})
    pipe.report.metrics(2, {"b": 1.0})
    pipe.close()
    assert [event.values for event in pipe.of(Metrics)] == [{"b": [1.0]}]
    assert "could not convert" in capfd.readouterr().err


def test_what_two_threads_write_does_not_mix(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def write_some(fd: int, data: memoryview) -> int:
        # As into a pipe that is nearly full: a few bytes at a time, and the other thread may go on in between.
        time.sleep(1e-4)
        return write(fd, data[:5])

    def beat() -> None:
        for _ in range(100):
            pipe.report.beat()

    monkeypatch.setattr(os, "write", write_some)
    beats = threading.Thread(target=beat)
    beats.start()
    for _ in range(50):
        pipe.report.phase("training")
        pipe.report.phase("evaluating")
    beats.join()
    pipe.close()
    assert [one.phase for one in pipe.of(Phase)] == ["training", "evaluating"] * 50
    assert len(pipe.of(wire.Heartbeat)) == 100


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
