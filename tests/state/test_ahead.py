"""A journal that is read ahead by a process of its own comes to the same as one that is read here."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from tests import histories as h
from tests.benchmarks.long_run import record
from tests.state.ahead_runs import assert_same, history, read_here, read_with, write
from tests.state.test_feed import until
from trainers.contract.events import AnyEvent, Steps, decode, encode
from trainers.contract.rundir import RunDir
from tuiapp.feeds import ahead
from tuiapp.feeds.ahead import ReadAhead, read_ahead
from tuiapp.feeds.ahead_feed import AheadFeed
from tuiapp.feeds.ahead_worker import Message, decoder, digest
from tuiapp.state.digest import Digest, digested
from tuiapp.state.entries import gather
from tuiapp.state.run_state import RunState

pytestmark = pytest.mark.usefixtures("patient_ahead")


@pytest.mark.parametrize("seed", range(8))
def test_digests_come_to_the_same_as_their_events(seed: int) -> None:
    events = _without_huge([event for each in history(seed) if (event := decode(encode(each)))])
    ordinary, other = RunState(), RunState()
    for event in events:
        ordinary.apply(event)
    told = 0
    for start in range(0, len(events), 50):
        message = Message(start, list(digest(events[start : start + 50])))
        for each in decoder.decode(msgspec.msgpack.encode(message)).told:
            other.apply(each)
            told += isinstance(each, Digest)
    assert told
    assert_same(other, ordinary)
    assert other._meter._totals.telling_seconds == pytest.approx(ordinary._meter._totals.telling_seconds)


def _without_huge(events: list[AnyEvent]) -> list[AnyEvent]:
    """Without numbers that the messages cannot hold: the worker ends at them, and the journal is read here."""
    return [each for each in events if not (isinstance(each, Steps) and max(each.examples, default=0) > 2**60)]


def test_a_journal_read_ahead_is_the_same(run: RunDir) -> None:
    record(run, 12_000)
    feed = AheadFeed(run, ReadAhead(run.journal))
    feed.start()
    told: list[object] = []
    assert_same(read_with(feed, run, told), read_here(run))
    assert len(told) < run.journal.read_bytes().count(b"\n") / 3
    feed.close()


def test_a_journal_that_grows_meanwhile(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.feeds.feed.ENDED_POLL_S", 0.005)
    write(run, history(1))
    feed = AheadFeed(run, ReadAhead(run.journal))
    write(run, history(2))
    feed.start()
    write(run, history(3))
    state = read_with(feed, run)
    write(run, history(4))
    tail = feed._tail
    assert tail is not None
    # The look that is under way may have begun before there was more; the one after it has not.
    polls = tail._polls + 2

    def folded() -> bool:
        all_read = tail._polls >= polls
        for each in feed.take(64):
            state.apply(each)
        return all_read and not tail._waiting

    until(folded)
    assert_same(state, read_here(run))
    feed.close()


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_never_said_that_it_ended_is_lost(run: RunDir, ended: bool) -> None:
    write(run, h.completed() if ended else h.running())
    feed = AheadFeed(run, ReadAhead(run.journal))
    feed.start()
    read_with(feed, run)
    until(lambda: feed._tail is not None and feed._tail._polls > 1)
    assert feed.lost != ended
    feed.close()


def test_columns_that_do_not_go_together_are_refused() -> None:
    (whole,) = digested([h.steps(0, 1, 10, 3.0)])
    assert isinstance(whole, Digest)
    (rank,) = whole.ranks
    with pytest.raises(ValueError, match="no steps"):
        msgspec.structs.replace(rank, batches=[]).__post_init__()
    with pytest.raises(ValueError, match="no steps"):
        msgspec.structs.replace(rank, entries=gather([])).__post_init__()
    changes: list[dict[str, Any]] = [
        {"firsts": b""},
        {"losses": rank.entries.losses[:-8]},
        {"sizes": array("q", [-1]).tobytes()},
        {"lows": rank.entries.losses},
        {"norms": b"12345678"},
        {"told": array("q", [1]).tobytes()},
    ]
    for change in changes:
        with pytest.raises(ValueError, match="columns"):
            msgspec.structs.replace(rank.entries, **change).__post_init__()
    assert not list(digested([]))


def test_only_a_long_journal_is_read_ahead(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_ahead(run.journal) is None
    write(run, history(1))
    assert read_ahead(run.journal) is None
    monkeypatch.setattr(ahead, "LONG_BYTES", 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert read_ahead(run.journal) is None
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    reader = read_ahead(run.journal)
    assert reader
    reader.close()
