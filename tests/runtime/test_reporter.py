"""What a rank tells over a real pipe, and that nothing ever holds up its training."""

from __future__ import annotations

import json
import math
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from trainers.contract.events import (
    Alert,
    AnyEvent,
    Evaluation,
    Event,
    FrameworkMemory,
    LogLine,
    Phase,
    RankStarted,
    Steps,
    StopRequested,
)
from trainers.runtime import reporter as reporter_module
from trainers.runtime import wire
from trainers.runtime.reporter import Reporter
from trainers.runtime.stop_gate import StopGate

DEADLINE_S = 60.0


class Pipe:
    """A reporter, and the supervisor's end of its pipe."""

    def __init__(self, rank: int = 0, nan_policy: str = "warn", speaks_for: Sequence[int] | None = None) -> None:
        self.read_fd, self._write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self.reader = wire.rank_messages(self.read_fd)
        self.gate = StopGate()
        self.report = Reporter(rank, self._write_fd, self.gate, nan_policy, speaks_for)
        self.messages: list[Any] = []

    def wait(self, enough: Callable[[], bool]) -> None:
        """Read until something holds."""
        deadline = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.read_fd, selectors.EVENT_READ)
            while not enough():
                assert time.monotonic() < deadline, self.messages[-5:]
                if selector.select(1.0):
                    self.messages += self.reader.read()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile the reporter's thread takes what there is no more than once, however slow the machine is."""
        go_on, convert = threading.Event(), self.report.convert

        def wait(losses: list[Any]) -> Sequence[float | Sequence[float]]:
            assert go_on.wait(DEADLINE_S)
            return convert(losses)

        self.report.convert = wait
        yield
        go_on.set()

    def close(self) -> list[AnyEvent]:
        """End the reporter; gives all that it has sent."""
        closing = threading.Thread(target=self.report.close)
        closing.start()
        while closing.is_alive():
            self.messages += self.reader.read()
        os.close(self._write_fd)
        self.wait(lambda: self.reader.ended)
        os.close(self.read_fd)
        assert self.reader.dropped == 0
        return self.messages

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]

    def steps(self) -> list[int]:
        return [step for event in self.of(Steps) for step in range(event.first_step, event.last_step + 1)]


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def test_steps_come_in_batches_and_in_order(pipe: Pipe) -> None:
    pipe.report.phase("training")
    with pipe.held():
        for step in range(1, 41):
            pipe.report.step(step, 1 / step, 24, 0.001 * step)
    pipe.report.evaluation(40, 1, 0.5, 0.9, 360)
    pipe.report.phase("done")
    pipe.close()
    first, last = pipe.of(Phase)
    assert (first.phase, last.phase) == ("training", "done")
    assert pipe.messages[0] is first
    assert pipe.messages[-1] is last
    assert pipe.steps() == list(range(1, 41))
    assert len(pipe.of(Steps)) <= 3
    losses = [loss for event in pipe.of(Steps) for loss in event.losses]
    assert losses == [1 / step for step in range(1, 41)]
    assert all(seconds >= 0 for event in pipe.of(Steps) for seconds in event.seconds)
    (evaluation,) = pipe.of(Evaluation)
    assert (evaluation.step, evaluation.loss, evaluation.accuracy, evaluation.examples) == (40, 0.5, 0.9, 360)


def test_waiting_for_batches_is_told(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(reporter_module, "perf_counter", lambda: now[0])
    pipe.report.phase("training")
    now[0] = 2.0
    pipe.report.save_before(1)
    now[0] = 10.0
    pipe.report.step(1, 1.0, 24, 0.1)
    now[0] = 15.0
    assert not pipe.report.save_before(2)
    # A checkpoint here: neither its time nor the wait before it is the step's.
    pipe.report.phase("training")
    now[0] = 16.0
    pipe.report.step(2, 1.0, 24, 0.1)
    pipe.close()
    assert sum(seconds for event in pipe.of(Steps) for seconds in event.seconds) == 11.0
    assert sum(event.data_wait_s or 0.0 for event in pipe.of(Steps)) == 2.0


def test_they_come_without_being_asked_for(pipe: Pipe) -> None:
    pipe.report.step(1, 1.0, 24, 0.1)
    pipe.wait(lambda: pipe.steps() == [1])
    pipe.close()


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


def test_a_conversion_that_fails_does_not_silence_the_rank(pipe: Pipe, capfd: pytest.CaptureFixture[str]) -> None:
    called = threading.Event()

    def convert(losses: list[Any]) -> list[float]:
        called.set()
        raise RuntimeError(f"device lost with {len(losses)} losses on it")

    pipe.report.convert = convert
    pipe.report.step(1, 1.0, 24, 0.1)
    assert called.wait(DEADLINE_S)
    pipe.report.phase("done")
    pipe.close()
    assert [phase.phase for phase in pipe.of(Phase)] == ["done"]
    assert "device lost with 1 losses on it" in capfd.readouterr().err


def test_faster_than_the_journal_keeps(pipe: Pipe) -> None:
    # All within a moment: the longer it takes the more may be kept.
    with pipe.held():
        for step in range(1, 20_001):
            pipe.report.step(step, float(step), 24, 0.1)
    pipe.close()
    assert pipe.steps() == list(range(1, 20_001))
    assert sum(len(event.losses) for event in pipe.of(Steps)) < 300
    assert pipe.of(Steps)[-1].losses_max[-1] == 20_000.0


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
        "rank 0: 4,000 steps were not recorded: nobody read them for too long",
    )


def test_a_gap_in_the_steps_starts_a_new_event(pipe: Pipe) -> None:
    for step in (1, 2, 3, 7, 8, 20):
        pipe.report.step(step, 1.0, 24, 0.1)
    pipe.close()
    assert pipe.steps() == [1, 2, 3, 7, 8, 20]
    assert len(pipe.of(Steps)) >= 3


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
    assert [loss for event in pipe.of(Steps) for loss in event.losses] == [1.0, 1.0, None, None, None, None]


def test_only_rank_0_tells_the_evaluation() -> None:
    pipe = Pipe(rank=1)
    pipe.report.evaluation(1, 1, math.nan, 0.5, 360)
    pipe.close()
    assert pipe.of(Evaluation) == []


def test_one_process_speaks_for_each_of_its_devices() -> None:
    pipe = Pipe(speaks_for=range(3))
    pipe.report.convert = lambda losses: losses
    for number in range(3):
        pipe.report.rank_started(f"cpu:{number}", number=number)
    pipe.report.phase("training")
    for step in (1, 2, 3):
        pipe.report.step(step, [1.0 * step, 10.0 * step, math.nan if step > 1 else 5.0], 16, 0.1)
    pipe.report.evaluation(3, 1, 0.5, 0.9, 360)
    pipe.close()
    assert [(one.rank, one.device, one.pid) for one in pipe.of(RankStarted)] == [
        (number, f"cpu:{number}", os.getpid()) for number in range(3)
    ]
    assert [(one.rank, one.phase) for one in pipe.of(Phase)] == [(number, "training") for number in range(3)]
    told = {number: [one for one in pipe.of(Steps) if one.rank == number] for number in range(3)}
    assert {number: [loss for one in told[number] for loss in one.losses] for number in told} == {
        0: [1.0, 2.0, 3.0],
        1: [10.0, 20.0, 30.0],
        2: [5.0, None, None],
    }
    assert all(sum(one.examples) == 16 * len(one.losses) for one in pipe.of(Steps))
    (alert,) = pipe.of(Alert)
    assert (alert.rank, alert.step) == (2, 2)
    assert len(pipe.of(Evaluation)) == 1


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


def test_every_message_is_a_line_of_json(pipe: Pipe) -> None:
    event: Event = Phase(rank=0, phase="training")
    assert json.loads(wire.encode(event))["type"] == "phase"
    assert wire.encode(wire.Vote(0, 2, 3)).count(b"\n") == 1
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


def test_memory_that_cannot_be_read_does_not_silence_the_rank(pipe: Pipe, capfd: pytest.CaptureFixture[str]) -> None:
    asked: list[int] = []

    def read() -> list[FrameworkMemory]:
        asked.append(1)
        raise RuntimeError("no such statistics")

    pipe.report.memory = read
    pipe.report.step(1, 0.5, 8, 0.1)
    pipe.wait(lambda: bool(pipe.of(Steps)))
    pipe.report.step(2, 0.5, 8, 0.1)
    pipe.wait(lambda: len(pipe.of(Steps)) == 2)
    pipe.close()
    assert len(asked) == 1
    assert "no such statistics" in capfd.readouterr().err
