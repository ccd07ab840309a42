"""When a run hangs, by a clock of the test's own."""

from __future__ import annotations

import pytest

from tuiapp.trainers.contract.events import PhaseName
from tuiapp.trainers.run.watchdog import PHASE_LIMITS_S, HangWatch, RankProgress, describe


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
