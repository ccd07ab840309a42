"""The supervisor's side of an agreement on a step."""

from __future__ import annotations

import pytest

from tests.kit.fake_ranks import NotingRank
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.teardown import Agreement


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
