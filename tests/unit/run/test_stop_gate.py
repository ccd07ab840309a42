"""Ranks in lockstep stop after the same step, whenever the stop comes: real threads over a real barrier."""

from __future__ import annotations

import queue
import random
import threading
from dataclasses import dataclass, field

import pytest

from tuiapp.trainers.rank.stop_gate import StopGate
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.ranks import Rank
from tuiapp.trainers.run.teardown import Agreement

DEADLINE_S = 60.0
EPOCH = 7


@dataclass(eq=False)
class SimulatedRank(Rank):
    """A training thread that meets the others at a barrier in each step, and a control thread."""

    rank: int
    barrier: threading.Barrier
    steps: int
    to_supervisor: queue.Queue[wire.Vote]
    dice: random.Random
    gate: StopGate = field(default_factory=StopGate)
    inbox: queue.Queue[wire.ToRank | None] = field(default_factory=queue.Queue)
    step: int = 0
    saved: list[int] = field(default_factory=list)
    saved_when_due: list[int] = field(default_factory=list)
    agrees: bool = True

    def start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=work, daemon=True) for work in (self.train, self.obey)]
        for thread in threads:
            thread.start()
        return threads

    def train(self) -> None:
        for step in range(1, self.steps + 1):
            if self.gate.saves_before(step):
                # What a checkpoint takes of all ranks is a collective too.
                self.barrier.wait(DEADLINE_S)
                self.saved.append(step - 1)
            if not self.gate.enter(step):
                return
            self.dawdle()
            self.barrier.wait(DEADLINE_S)
            self.step = step
            if step % EPOCH == 0 and self.gate.due_after(step):
                self.barrier.wait(DEADLINE_S)
                self.saved_when_due.append(step)

    def obey(self) -> None:
        while (message := self.inbox.get(timeout=2 * DEADLINE_S)) is not None:
            self.dawdle()
            match message:
                case wire.Propose(vote_round):
                    self.to_supervisor.put(wire.Vote(self.rank, self.gate.vote(), vote_round))
                case wire.Agreed(step, stop, save, due=due):
                    self.gate.decide(step, stop=stop, save=save, due=due)

    def dawdle(self) -> None:
        """Some work of random length, so that threads overtake each other."""
        for _ in range(self.dice.choice([0, 0, 0, 100, 3000])):
            pass

    # What an `Agreement` needs.

    def send(self, message: wire.ToRank) -> None:
        self.inbox.put(message)


@pytest.mark.parametrize("seed", range(50))
def test_all_ranks_save_and_stop_after_the_same_steps(seed: int) -> None:
    """Some checkpoints are asked for, then an end; requests may overtake each other's votes."""
    dice = random.Random(seed)
    world, steps = dice.choice([1, 2, 3, 5, 8]), dice.choice([1, 3, 200, 2000])
    barrier, votes = threading.Barrier(world), queue.Queue[wire.Vote]()
    ranks = [SimulatedRank(rank, barrier, steps, votes, random.Random(dice.random())) for rank in range(world)]
    threads = [rank.start() for rank in ranks]
    agreement = Agreement()
    requests = [*["save"] * dice.choice([0, 1, 3]), "stop"]
    waiting = 0
    for request in requests:
        for _ in range(dice.choice([0, 0, 1000, 100_000])):
            pass
        save = request == "save" or dice.random() < 0.5
        agreement.propose(ranks, stop=request == "stop", save=save, due=dice.random() < 0.5)
        waiting += world
        for _ in range(dice.randint(0, waiting) if request == "save" else waiting):
            vote = votes.get(timeout=DEADLINE_S)
            agreement.count(vote, ranks[vote.rank], ranks)
            waiting -= 1
    for training, _ in threads:
        training.join(DEADLINE_S)
    assert not any(training.is_alive() for training, _ in threads), [rank.step for rank in ranks]
    for rank in ranks:
        rank.inbox.put(None)
    assert len({rank.step for rank in ranks}) == 1
    assert len({tuple(rank.saved) for rank in ranks}) == 1
    assert len({tuple(rank.saved_when_due) for rank in ranks}) == 1
    assert not barrier.broken


@pytest.mark.parametrize(("decided", "goes_on"), [(5, False), (6, True)])
def test_a_held_rank_waits_for_the_decision(decided: int, goes_on: bool) -> None:
    gate, answers = StopGate(), queue.Queue[bool]()
    gate.enter(5)
    gate.vote()
    thread = threading.Thread(target=lambda: answers.put(gate.enter(6)), daemon=True)
    thread.start()
    with pytest.raises(queue.Empty):
        answers.get(timeout=0.05)
    gate.decide(decided)
    assert answers.get(timeout=DEADLINE_S) is goes_on
    assert gate.enter(7) is False


def test_a_rank_whose_supervisor_is_gone_is_let_go() -> None:
    gate, answers = StopGate(), queue.Queue[bool]()
    gate.vote()
    thread = threading.Thread(target=lambda: answers.put(gate.enter(1)), daemon=True)
    thread.start()
    gate.release()
    assert answers.get(timeout=DEADLINE_S) is True
    assert gate.enter(2)


def test_a_decision_outlives_the_supervisor() -> None:
    gate = StopGate()
    gate.vote()
    gate.decide(0)
    gate.release()
    assert not gate.enter(1)


def test_a_save_that_is_due_waits_for_an_epoch_that_no_rank_has_ended() -> None:
    gate = StopGate(7)
    gate.vote()
    gate.decide(7, stop=False, due=True)
    assert [gate.due_after(step) for step in (7, 14, 21)] == [False, True, False]


def test_a_rank_that_has_resumed_has_made_the_steps_before() -> None:
    gate = StopGate(72)
    assert gate.vote() == 72
    gate.decide(72, stop=True, save=True)
    assert gate.saves_before(73)
    assert not gate.enter(73)
