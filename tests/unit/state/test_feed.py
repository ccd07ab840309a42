"""The feed on real journal files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.waiting import wait_until
from tuiapp.feeds.feed import JournalFeed
from tuiapp.screens.run_reader import RunReader
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def quick(run: RunDir) -> JournalFeed:
    return JournalFeed(run, poll_s=0.005, live_check_s=0.005)


def write(run: RunDir, events: list[AnyEvent]) -> None:
    writer = JournalWriter(run.journal)
    writer.append(events)
    writer.close()


def events_of(feed: JournalFeed, limit: int) -> list[AnyEvent]:
    return [each for each in feed.take(limit) if not isinstance(each, RunState)]


def test_a_whole_journal_arrives_in_order(run: RunDir) -> None:
    events = h.completed()
    write(run, events)
    feed = quick(run)
    feed.start()
    taken: list[AnyEvent] = []

    def all_taken() -> bool:
        taken.extend(events_of(feed, 7))
        return len(taken) >= len(events)

    wait_until(all_taken)
    assert [event.seq for event in taken] == list(range(1, len(events) + 1))
    assert not feed.lost
    feed.close()


def test_a_journal_that_grows_with_a_torn_tail(run: RunDir) -> None:
    lock = run.take_lock()
    assert lock >= 0
    events = h.running()
    write(run, events[:10])
    with run.journal.open("ab") as file:
        file.write(b'{"type":"steps","ra')
    feed = quick(run)
    feed.start()
    state, taken = RunState(), list[AnyEvent]()

    def folded(count: int) -> Callable[[], bool]:
        def check() -> bool:
            for event in events_of(feed, 100):
                apply(state, event)
                taken.append(event)
            return len(taken) >= count

        return check

    wait_until(folded(10))
    write(run, events[10:])
    wait_until(folded(len(events)))
    assert state.step == 130
    assert not feed.lost
    feed.close()


def test_without_supervisor_and_end_the_run_is_lost(run: RunDir) -> None:
    write(run, h.running(last_step=72))
    feed = quick(run)
    feed.start()

    def lost() -> bool:
        feed.take(1)
        return feed.lost

    wait_until(lost)
    assert feed.take(1) == []
    feed.close()


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_is_resumed_goes_on(run: RunDir, monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    monkeypatch.setattr("tuiapp.feeds.feed.ENDED_POLL_S", 0.005)
    first = interrupted.stopped() if ended else interrupted.stopped()[:-1]
    write(run, first)
    feed = quick(run)
    feed.start()
    state, taken = RunState(), list[AnyEvent]()

    def folded() -> int:
        for event in events_of(feed, 100):
            apply(state, event)
            taken.append(event)
        return len(taken)

    wait_until(lambda: folded() == len(first))
    wait_until(lambda: feed.lost != ended)
    lock = run.take_lock()
    write(run, interrupted.resumed())
    wait_until(lambda: folded() == len(first) + len(interrupted.resumed()))
    assert (state.status, state.step) == ("running", 82)
    wait_until(lambda: not feed.lost)
    os.close(lock)
    wait_until(lambda: feed.lost)
    feed.close()


@pytest.mark.nightly
def test_a_directory_that_is_away_for_a_while(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    lock = run.take_lock()
    write(run, h.running(last_step=72))
    reader = RunReader(run, quick(run), time.time)
    reader.start()

    def status() -> str:
        reader.read(1.0)
        return reader.state.status

    wait_until(lambda: status() == "running" and reader.state.step == 72)
    run.path.rename(tmp_path / "elsewhere")
    wait_until(lambda: status() == "lost")
    assert reader.state.removed
    # It is back, and nothing new stands in its journal.
    (tmp_path / "elsewhere").rename(run.path)
    wait_until(lambda: status() == "running")
    assert not reader.state.removed
    os.close(lock)
    wait_until(lambda: status() == "lost")
    assert not reader.state.removed
    reader.close()


def test_a_missing_journal_is_a_lost_run(run: RunDir) -> None:
    feed = quick(run)
    feed.start()
    wait_until(lambda: feed.lost)
    feed.close()
