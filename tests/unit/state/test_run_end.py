"""How a run ends: the failure that is its cause, and a run that is lost."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.state.condition import headline, rank_condition
from tuiapp.trainers.state.fold import apply


def test_the_named_rank_is_the_first_cause() -> None:
    state = fold(interrupted.failed())
    first = state.first_failure
    assert first is not None
    assert first.rank == 1
    found = headline(state)
    assert found is not None
    assert found.text.startswith("rank 1 failed at step 72: RuntimeError: CUDA error")
    assert found.text.endswith("1 more rank failed after it")
    told = [rank_condition(state, rank, 0, h.START + 7).text for rank in state.ranks.values()]
    assert told == ["exit 1", "failed first: exit 1"]


def test_a_rank_that_failed_alone_did_not_fail_first() -> None:
    state = fold([*h.running(), RankFailed(rank=1, signal="SIGKILL", **h.at(9))])
    assert rank_condition(state, state.ranks[1], 0, h.START + 9).text == "SIGKILL"


def test_without_a_named_rank_the_earliest_failure_is() -> None:
    state = fold(interrupted.failed()[:-1])
    assert state.first_failure is not None
    assert state.first_failure.rank == 1


def test_lost_runs_come_back_with_their_next_event() -> None:
    state = fold(h.running(last_step=72))
    state.mark_lost()
    assert state.lost
    state.take_changes()
    assert state.elapsed(h.START + 9999) == pytest.approx(5.6)
    apply(state, h.steps(0, 73, 80, 6.0))
    assert (state.status, state.lost) == ("running", False)
    assert "alerts" in state.take_changes()


def test_a_run_whose_directory_was_removed_says_so() -> None:
    state = fold(h.running(last_step=72))
    state.mark_lost(removed=True)
    found = headline(state)
    assert found is not None
    assert "directory was removed" in found.text
    state.mark_found()
    assert (state.status, headline(state)) == ("running", None)
