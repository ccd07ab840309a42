"""A run's early end: agreed, asked, forced. Ranks and clock are the test's own."""

from __future__ import annotations

import signal

import pytest

from tests.kit.fake_ranks import NotingRank
from tuiapp.trainers.contract.events import Event, LogLine, StopRequested
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.teardown import (
    CAUSE_SETTLE_S,
    SAVE_GRACE_S,
    SETTLE_S,
    STOP_GRACE_S,
    TERM_GRACE_S,
    Agreement,
    Teardown,
)

COMMAND = StopRequested(by="command", save=True)
AT_ONCE = StopRequested(by="command", now=True)
START = 1000.0


class Run:
    """A teardown, its ranks and what it said."""

    def __init__(self, world_size: int = 3) -> None:
        self.agreement = Agreement()
        self.teardown = Teardown(self.agreement)
        self.ranks = [NotingRank(rank) for rank in range(world_size)]
        self.said: list[Event] = []

    def advance(self, seconds: float) -> None:
        self.teardown.advance(START + seconds, self.ranks, self.said.append)

    def signals(self) -> list[list[signal.Signals]]:
        return [rank.signals for rank in self.ranks]

    def vote(self, rank: int, step: int) -> None:
        self.agreement.count(wire.Vote(rank, step, 1), self.ranks[rank], self.ranks)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_stop_is_agreed(run: Run) -> None:
    run.teardown.stop(COMMAND, START, run.ranks)
    assert all(rank.told == [wire.Propose(1)] for rank in run.ranks)
    run.teardown.stop(COMMAND, START + 1, run.ranks)
    for rank in range(3):
        run.vote(rank, 6 + rank)
    assert all(rank.told == [wire.Propose(1), wire.Agreed(8, stop=True, save=True)] for rank in run.ranks)
    run.advance(STOP_GRACE_S - 0.1)
    assert run.signals() == [[], [], []]
    assert run.teardown.stopping
    assert not run.teardown.killing
    assert run.teardown.reason(8) == "on request, after step 8"


def test_a_stop_waits_longer_for_a_checkpoint(run: Run) -> None:
    run.teardown.stop(COMMAND, START, run.ranks)
    run.teardown.give_time_to_save(START + 5)
    run.advance(5 + SAVE_GRACE_S - 0.1)
    assert run.signals() == [[], [], []]
    run.advance(5 + SAVE_GRACE_S)
    assert run.signals() == [[signal.SIGTERM]] * 3
    # Not once it has begun to end the ranks.
    run.teardown.give_time_to_save(START + 6 + SAVE_GRACE_S)
    run.advance(5 + SAVE_GRACE_S + TERM_GRACE_S)
    assert run.signals() == [[signal.SIGTERM, signal.SIGKILL]] * 3


def test_a_checkpoint_gives_no_time_to_a_run_that_goes_on_or_must_end_at_once(run: Run) -> None:
    run.teardown.give_time_to_save(START)
    run.advance(10 * SAVE_GRACE_S)
    assert run.signals() == [[], [], []]
    run.teardown.stop(AT_ONCE, START + 10 * SAVE_GRACE_S, run.ranks)
    run.teardown.give_time_to_save(START + 10 * SAVE_GRACE_S)
    run.advance(10 * SAVE_GRACE_S)
    assert run.signals() == [[signal.SIGTERM]] * 3


def test_ranks_that_do_not_stop_get_sigterm_and_then_sigkill(run: Run) -> None:
    run.teardown.stop(COMMAND, START, run.ranks)
    run.advance(STOP_GRACE_S)
    assert run.signals() == [[signal.SIGTERM]] * 3
    assert run.teardown.killing
    run.advance(STOP_GRACE_S + TERM_GRACE_S - 0.1)
    assert run.signals() == [[signal.SIGTERM]] * 3
    run.ranks.pop(0)
    run.advance(STOP_GRACE_S + TERM_GRACE_S)
    assert run.signals() == [[signal.SIGTERM, signal.SIGKILL]] * 2
    texts = [event.text for event in run.said if isinstance(event, LogLine)]
    assert texts == [f"rank {rank} did not end on SIGTERM: sent SIGKILL" for rank in (1, 2)]
    run.advance(STOP_GRACE_S + 2 * TERM_GRACE_S)
    assert run.signals() == [[signal.SIGTERM, signal.SIGKILL, signal.SIGKILL]] * 2


def test_a_stop_now_skips_the_agreement(run: Run) -> None:
    run.teardown.stop(AT_ONCE, START, run.ranks)
    run.advance(0)
    assert [rank.told for rank in run.ranks] == [[], [], []]
    assert run.signals() == [[signal.SIGTERM]] * 3
    assert run.teardown.reason(5) == "on request, after step 5, at once"


def test_a_second_stop_does_not_put_off_the_first(run: Run) -> None:
    run.teardown.stop(COMMAND, START, run.ranks)
    run.teardown.stop(COMMAND, START + 20, run.ranks)
    run.advance(STOP_GRACE_S)
    assert run.signals() == [[signal.SIGTERM]] * 3
    # Nor does one that comes between SIGTERM and SIGKILL.
    run.teardown.stop(AT_ONCE, START + STOP_GRACE_S + 1, run.ranks)
    run.advance(STOP_GRACE_S + TERM_GRACE_S)
    assert run.signals() == [[signal.SIGTERM, signal.SIGKILL]] * 3


def test_after_a_failure_the_others_may_fail_by_themselves(run: Run) -> None:
    run.ranks.pop(1)
    run.teardown.fail(START)
    run.advance(SETTLE_S - 0.1)
    assert run.signals() == [[], []]
    # A further failure does not put it off.
    run.teardown.fail(START + SETTLE_S - 0.1)
    run.advance(SETTLE_S)
    assert run.signals() == [[signal.SIGTERM]] * 2
    run.advance(SETTLE_S + TERM_GRACE_S)
    assert run.signals() == [[signal.SIGTERM, signal.SIGKILL]] * 2


def test_after_a_consequence_the_cause_has_longer_to_show(run: Run) -> None:
    run.teardown.fail(START, consequence=True)
    run.advance(CAUSE_SETTLE_S - 0.1)
    assert run.signals() == [[]] * 3
    # Not once it has.
    run.teardown.fail(START + CAUSE_SETTLE_S - 1.2)
    run.advance(CAUSE_SETTLE_S - 0.2)
    assert run.signals() == [[signal.SIGTERM]] * 3


def test_a_failure_shortens_a_stop(run: Run) -> None:
    run.teardown.stop(COMMAND, START, run.ranks)
    run.teardown.fail(START + 1)
    run.advance(1 + SETTLE_S)
    assert run.signals() == [[signal.SIGTERM]] * 3


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("command", "on request, after step 1,234"),
        ("SIGTERM", "by SIGTERM, after step 1,234"),
        ("nan_policy", "because a loss was not finite (nan_policy), after step 1,234"),
        ("rank 3", "by rank 3, after step 1,234"),
    ],
)
def test_why_in_words(run: Run, by: str, words: str) -> None:
    run.teardown.stop(StopRequested(by=by), START, run.ranks)
    run.teardown.stop(StopRequested(by="somebody else"), START, run.ranks)
    assert run.teardown.reason(1234) == words


def test_a_checkpoint_does_not_put_off_the_end_after_a_failure(run: Run) -> None:
    run.teardown.stop(COMMAND, START, run.ranks)
    run.teardown.fail(START + 1)
    run.teardown.give_time_to_save(START + 1.5)
    run.advance(1 + SETTLE_S)
    assert run.signals() == [[signal.SIGTERM]] * 3


@pytest.fixture
def ranks() -> list[NotingRank]:
    return [NotingRank(rank) for rank in range(3)]


def test_the_last_vote_decides_and_the_furthest_rank_counts(ranks: list[NotingRank]) -> None:
    agreement = Agreement()
    agreement.propose(ranks, stop=True)
    for rank, step in ((0, 7), (2, 8)):
        agreement.count(wire.Vote(rank, step, 1), ranks[rank], ranks)
    assert all(rank.told == [wire.Propose(1)] for rank in ranks)
    agreement.count(wire.Vote(1, 7, 1), ranks[1], ranks)
    decided = [wire.Propose(1), wire.Agreed(8, stop=True, save=False)]
    assert all(rank.told == decided for rank in ranks)
    agreement.count(wire.Vote(1, 9, 1), ranks[1], ranks)
    assert all(rank.told == decided for rank in ranks)


def test_a_request_that_overtakes_another_is_decided_with_it(ranks: list[NotingRank]) -> None:
    agreement = Agreement()
    agreement.propose(ranks, save=True)
    agreement.count(wire.Vote(0, 3, 1), ranks[0], ranks)
    agreement.propose(ranks, stop=True)
    # Votes that were under way when the second request came.
    agreement.count(wire.Vote(1, 3, 1), ranks[1], ranks)
    agreement.count(wire.Vote(2, 3, 1), ranks[2], ranks)
    assert all(rank.told == [wire.Propose(1), wire.Propose(2)] for rank in ranks)
    for rank in range(3):
        agreement.count(wire.Vote(rank, 4, 2), ranks[rank], ranks)
    assert all(rank.told[-1] == wire.Agreed(4, stop=True, save=True) for rank in ranks)


def test_steps_are_profiled_once(ranks: list[NotingRank]) -> None:
    agreement = Agreement()
    for vote_round, asked in enumerate((10, 0), start=1):
        agreement.propose(ranks, profile=asked, save=not asked)
        for rank in range(3):
            agreement.count(wire.Vote(rank, 4, vote_round), ranks[rank], ranks)
        assert ranks[0].told[-1] == wire.Agreed(4, stop=False, save=not asked, profile=asked)


def test_a_checkpoint_is_saved_once(ranks: list[NotingRank]) -> None:
    agreement = Agreement()
    for vote_round, (save, stop) in enumerate(((True, False), (False, True)), start=1):
        agreement.propose(ranks, save=save, stop=stop)
        for rank in range(3):
            agreement.count(wire.Vote(rank, 4 * vote_round, vote_round), ranks[rank], ranks)
    assert [message for message in ranks[0].told if isinstance(message, wire.Agreed)] == [
        wire.Agreed(4, stop=False, save=True),
        wire.Agreed(8, stop=True, save=False),
    ]


def test_a_rank_that_has_ended_is_not_waited_for(ranks: list[NotingRank]) -> None:
    agreement = Agreement()
    agreement.propose(ranks, stop=True)
    for rank in (0, 1):
        agreement.count(wire.Vote(rank, 5, 1), ranks[rank], ranks)
    gone = ranks.pop()
    agreement.leave(6, ranks)
    assert [rank.told[-1] for rank in ranks] == [wire.Agreed(6, stop=True, save=False)] * 2
    assert gone.told == [wire.Propose(1)]


def test_a_rank_that_joins_an_open_vote_is_asked_too() -> None:
    agreement, live = Agreement(), [NotingRank(0), NotingRank(1, agrees=False)]
    assert agreement.propose(live, save=True)
    live[1].agrees = True
    agreement.join(live[1], live)
    assert live[1].told == [wire.Propose(2)]
    agreement.count(wire.Vote(0, 3, 2), live[0], live)
    agreement.count(wire.Vote(1, 2, 2), live[1], live)
    assert live[0].told[-1] == live[1].told[-1] == wire.Agreed(3, stop=False, save=True)


def test_a_rank_that_joins_after_a_vote_is_told_its_result() -> None:
    agreement, live = Agreement(), [NotingRank(0), NotingRank(1, agrees=False)]
    assert agreement.propose(live, stop=True, save=True)
    agreement.count(wire.Vote(0, 3, 1), live[0], live)
    live[1].agrees = True
    agreement.join(live[1], live)
    assert live[1].told[-1] == wire.Agreed(3, stop=True, save=True)


def test_a_rank_that_begins_after_a_stop_and_the_end_of_the_others_stops_at_once() -> None:
    agreement, live = Agreement(), [NotingRank(0)]
    assert agreement.propose(live, stop=True, save=True)
    agreement.count(wire.Vote(0, 30, 1), live[0], live)
    live[0].agrees = False
    agreement.leave(30, live)
    late = NotingRank(0)
    agreement.join(late, [late])
    assert late.told == [wire.Agreed(0, stop=True, save=False)]


def test_steps_of_those_that_have_all_left_do_not_count_for_who_comes_next() -> None:
    agreement = Agreement()
    agreement.leave(30, [])
    late = NotingRank(0)
    agreement.propose([late], stop=True)
    agreement.count(wire.Vote(0, 2, 1), late, [late])
    assert late.told[-1] == wire.Agreed(2, stop=True, save=False)
