"""When a run hangs, and what is told of it, by a clock of the test's own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.fake_ranks import Process
from tests.kit.waiting import wait_until
from tuiapp.trainers.config.options import HANG_VARIABLE
from tuiapp.trainers.contract.events import Alert, Event, LogLine, PhaseName
from tuiapp.trainers.run.watchdog import ANSWER_S, PHASE_LIMITS_S, HangWatch, RankProgress, Watchdog, describe
from tuiapp.trainers.run.wire import Heartbeat


class Run:
    """Ranks that tell every second where they stand."""

    def __init__(self, world_size: int = 4) -> None:
        self.watch = HangWatch(limit_s=30.0)
        self.now = 1000.0
        self.progress_by_rank = {rank: RankProgress(0, "preparing") for rank in range(world_size)}
        self.told: list[float] = []
        self.stopped: set[int] = set()

    def put(self, step: int, phase: PhaseName = "training", ranks: tuple[int, ...] | None = None) -> None:
        for rank in ranks if ranks is not None else self.progress_by_rank:
            self.progress_by_rank[rank] = RankProgress(step, phase)

    def wait(self, seconds: int, *, steps_each: int = 0) -> None:
        for second in range(seconds):
            if steps_each and second % steps_each == 0:
                for rank, progress in self.progress_by_rank.items():
                    self.progress_by_rank[rank] = RankProgress(progress.step + 1, "training")
            for rank, progress in self.progress_by_rank.items():
                if rank not in self.stopped:
                    self.watch.on_progress(rank, progress, self.now)
            if (silent := self.watch.poll(self.now, self.stopped)) is not None:
                self.told.append(silent)
            self.now += 1.0


@pytest.fixture
def run() -> Run:
    run = Run()
    run.put(1)
    run.wait(60, steps_each=1)
    assert run.told == []
    return run


def test_a_rank_whose_node_does_not_answer_is_not_behind() -> None:
    progress_by_rank = {0: RankProgress(130, "training"), 1: RankProgress(129, "training")}
    said = describe(30.0, progress_by_rank, [1], unreachable={1: "node 1 (node-b)"})
    assert said == "no progress for 30 s: node 1 (node-b) does not answer; the other ranks are at step 130"


def test_what_an_unreachable_rank_did_last_does_not_say_how_long_to_wait(run: Run) -> None:
    # The node was cut off before its rank said that its first step was over.
    run.put(61, "preparing", ranks=(1,))
    run.wait(1)
    silent = [run.watch.poll(run.now + second, unreachable={1: "node 1 (node-b)"}) for second in range(35)]
    assert [seconds for seconds in silent if seconds is not None] == [30.0]


def test_nobody_gets_on(run: Run) -> None:
    run.put(62, ranks=(0, 1, 3))
    run.wait(29)
    assert run.told == []
    run.wait(30)
    assert len(run.told) == 1
    assert 30 <= run.told[0] <= 32
    assert run.watch.behind() == [2]


def test_it_is_told_again_only_after_it_was_over(run: Run) -> None:
    run.wait(200)
    assert len(run.told) == 1
    assert run.watch.over(run.now) is None
    run.put(62)
    run.wait(1)
    lasted = run.watch.over(run.now)
    assert lasted is not None
    assert 195 < lasted < 205
    assert run.watch.over(run.now) is None
    # A hang says nothing of what is usual.
    run.wait(40)
    assert len(run.told) == 2


def test_slow_steps_are_usual_once_seen() -> None:
    run = Run()
    run.put(1)
    run.wait(200, steps_each=20)
    assert run.told == []
    run.wait(75)
    assert run.told == []
    run.wait(20)
    assert len(run.told) == 1


@pytest.mark.parametrize("phase", sorted(PHASE_LIMITS_S))
def test_what_takes_long_is_no_hang_until_it_takes_very_long(run: Run, phase: PhaseName) -> None:
    run.put(61, phase)
    run.wait(int(PHASE_LIMITS_S[phase]) - 5)
    assert run.told == []
    run.wait(10)
    assert len(run.told) == 1


def test_gpus_that_do_not_connect_are_told_after_90_s_with_what_to_try() -> None:
    run = Run(2)
    run.put(0, "connecting", ranks=(0,))
    run.wait(120)
    # The other one still imports.
    assert run.told == []
    run.put(0, "connecting")
    run.wait(95)
    assert len(run.told) == 1
    said = describe(run.told[0], run.watch.progress_by_rank(), run.watch.behind())
    assert said.startswith("no progress for 90 s: all ranks are before the first step (connecting); ")
    assert "NCCL_P2P_DISABLE=1" in said
    assert "--shm-size" in said


def test_those_who_wait_for_a_checkpoint_are_no_hang(run: Run) -> None:
    run.put(61, "checkpointing", ranks=(0,))
    run.wait(500)
    assert run.told == []


def test_an_evaluation_that_takes_far_longer_than_before_is_one(run: Run) -> None:
    run.put(61, "evaluating")
    run.wait(10)
    run.put(62)
    run.wait(1)
    run.put(62, "evaluating")
    run.wait(59)
    assert run.told == []
    run.wait(5)
    assert len(run.told) == 1


def test_a_supervisor_that_did_not_run_knows_nothing(run: Run) -> None:
    run.wait(20)
    run.now += 3600
    run.wait(25)
    assert run.told == []
    run.wait(10)
    assert len(run.told) == 1


def test_a_stopped_rank_is_told_and_is_no_hang(run: Run) -> None:
    run.stopped = {1}
    run.wait(9)
    assert run.watch.stopped(run.now) == []
    run.wait(3)
    assert run.watch.stopped(run.now) == [1]
    run.wait(300)
    assert run.told == []
    run.stopped = set()
    run.wait(20)
    assert run.watch.stopped(run.now) == []
    assert run.told == []


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([50, 49, 50, 50], "rank 1 is behind, at step 49; ranks 0, 2 and 3 wait at step 50"),
        ([50, 49, 48], "ranks 1 and 2 are behind, at steps 48 to 49; rank 0 waits at step 50"),
        ([50, 50], "all ranks are at step 50 (training)"),
        ([1234], "the rank is at step 1,234 (training)"),
        ([0, 0], "all ranks are before the first step (training)"),
        ([9] * 20 + [8], "rank 20 is behind, at step 8; the 20 others wait at step 9"),
    ],
)
def test_in_words(steps: list[int], words: str) -> None:
    progress_by_rank = {rank: RankProgress(step, "training") for rank, step in enumerate(steps)}
    behind = [rank for rank, step in enumerate(steps) if step < max(steps)]
    assert describe(31.4, progress_by_rank, behind) == f"no progress for 31 s: {words}"


def test_on_several_nodes_those_behind_are_named_with_theirs() -> None:
    progress_by_rank = {rank: RankProgress(8 if rank in (9, 10) else 9, "training") for rank in range(16)}
    words = describe(31.4, progress_by_rank, [9, 10], place_of=lambda rank: f"node {rank // 8}, gpu{rank // 8 + 1:02}")
    assert "ranks 9 and 10 (node 1, gpu02) are behind, at step 8; the 14 others wait at step 9" in words


MUTE = """
import signal, time
signal.signal(signal.SIGUSR2, lambda *_: None)
print("up", flush=True)
while True:
    time.sleep(600)
"""


@pytest.mark.parametrize("back_after_s", [1, ANSWER_S + 2])
def test_a_hang_is_told_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back_after_s: float) -> None:
    monkeypatch.setenv(HANG_VARIABLE, "10")
    said: list[Event] = []
    watchdog = Watchdog(said.append, lambda rank: "node 0, gpu01")
    with subprocess.Popen([sys.executable, "-S", "-c", MUTE], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            live, began = {0: Process(process.pid, tmp_path)}, 1000
            for second in range(began, began + 19):
                # It goes on a moment after it was asked for its stacks, or long after that.
                step = 5 if second < began + 10 + back_after_s else 6
                watchdog.on_heartbeat(Heartbeat(0, step, "training"), float(second))
                watchdog.advance(float(second), live)
        finally:
            process.kill()
    alerts = [event for event in said if isinstance(event, Alert)]
    assert [(alert.kind, alert.ended) for alert in alerts] == [("hang", False), ("hang", True)]
    lines = [event.text for event in said if isinstance(event, LogLine)]
    assert lines == ["rank 0 (node 0, gpu01) gave no Python stacks"]


def test_a_stopped_rank_is_named_with_its_node(tmp_path: Path) -> None:
    said: list[Event] = []
    watchdog = Watchdog(said.append, lambda rank: "node 0, gpu01")
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            live = {3: Process(process.pid, tmp_path)}
            wait_until(live[3].is_stopped, 30)
            for second in range(1000, 1015):
                watchdog.on_heartbeat(Heartbeat(3, 5, "training"), 1000.0)
                watchdog.advance(float(second), live)
        finally:
            process.kill()
    (alert,) = said
    assert isinstance(alert, Alert)
    assert alert.text.startswith("rank 3 (node 0, gpu01) is stopped ")


def test_a_rank_that_has_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HANG_VARIABLE, "10")
    said: list[Event] = []
    watchdog = Watchdog(said.append)
    watchdog.note_end(1)
    for second in range(1000, 1013):
        watchdog.on_heartbeat(Heartbeat(0, 5, "training"), 1000.0)
        watchdog.advance(float(second), {})
    (alert,) = [event for event in said if isinstance(event, Alert)]
    assert alert.text.endswith("the rank is at step 5 (training); rank 1 has ended")
