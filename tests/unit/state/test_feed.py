"""The feed on real journal files, and what is said before it has reached the journal's end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.digest_runs import digest_of, write_journal
from tests.kit.waiting import wait_until
from tuiapp.feeds import feed as feeds
from tuiapp.feeds.feed import JournalFeed
from tuiapp.screens.run_reader import RunReader
from tuiapp.trainers.contract.events import Alert, AnyEvent, encode
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import follow
from tuiapp.trainers.state.condition import headline
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.rank_list import rank_rows


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


LAST = 6000
NOW = h.START + 2.5 + LAST / 20


"""Half a second after the last step."""


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run that makes its 6,000th step just now, with a hang near its beginning that has long been over."""
    monkeypatch.setattr(feeds, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(follow, "SLACK_BYTES", 4096)
    run = RunDir(tmp_path)
    run.take_lock()
    write_journal(run, journal())
    return run


def journal() -> list[AnyEvent]:
    events = h.running(last_step=LAST)
    hang = Alert(kind="hang", severity="error", rank=1, text="no progress", **h.at(10))
    over = Alert(kind="hang", severity="info", rank=1, text="it goes on", ended=True, **h.at(11))
    return sorted([*events, hang, over], key=lambda event: event.time)


def watch(reader: RunReader) -> list[tuple[int, float | None]]:
    """Reads to the end, in pieces; returns the steps and shares on the way, none taken for the present."""
    reader.start()
    seen: list[tuple[int, float | None]] = []
    deadline = time.monotonic() + 60
    while True:
        more = reader.read(0.0005).has_more
        state = reader.state
        rows = rank_rows(state, reader.now)
        if not more and state.step == LAST:
            return seen
        assert time.monotonic() < deadline
        if state.step == LAST and getattr(state, "reading", None) is None:
            # All of it is known; what is left of the batch says nothing new.
            continue
        if not state.step or (seen and seen[-1] == (state.step, getattr(state, "reading", None))):
            continue
        seen.append((state.step, getattr(state, "reading", None)))
        assert state.remaining() is None
        assert state.examples_per_second is None
        assert state.elapsed(reader.now) is None
        assert state.phase == state.fault == ""
        assert not state.can_resume
        assert headline(state) is None
        assert {row.condition.text for row in rows} == {"reading"}
        assert {(row.silent_s, row.pace.seconds_per_step) for row in rows} == {(None, None)}


@pytest.mark.parametrize("digested", [False, True], ids=["journal", "digest"])
def test_what_is_past_is_not_shown_as_live(live: RunDir, digested: bool) -> None:
    if digested:
        # A digest that was made some time ago.
        digest_of(live, journal()[:1000])
        write_journal(live, journal())
    reader = RunReader(live, JournalFeed(live, poll_s=0.005), lambda: NOW)
    seen = watch(reader)
    assert len(seen) > 5
    shares = [share for _, share in seen if share is not None]
    assert len(shares) == len(seen)
    assert shares == sorted(shares)
    state = reader.state
    assert state.reading is None
    assert state.examples_per_second == pytest.approx(2 * 24 / 0.05)
    assert {row.condition.text for row in rank_rows(state, reader.now)} == {"training"}
    reader.close()


def test_a_journal_that_grows_during_each_read_is_read_to_its_end(
    live: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a slow directory a live run writes something while its journal is read."""
    feed, steps = JournalFeed(live, whole=True), count(LAST + 1)
    read = JournalReader.read

    def read_slowly(reader: JournalReader) -> list[AnyEvent]:
        found = read(reader)
        with live.journal.open("ab") as file:
            file.write(encode(h.steps(0, step := next(steps), step, 500)))
        return found

    monkeypatch.setattr(JournalReader, "read", read_slowly)
    looks = feed._poll()
    for _ in islice(looks, 2 * live.journal.stat().st_size // feeds.CHUNK_BYTES):
        feed.take(10_000)
        if feed.reading is None:
            break
    assert feed.reading is None
    looks.close()


def test_a_feed_that_keeps_up_reads_together_what_is_written_meanwhile(
    live: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SLACK_BYTES", 1 << 20)
    feed = JournalFeed(live, poll_s=0.005)
    looks = feed._poll()
    while feed.reading is not None:
        next(looks)
        feed.take(1000)
    steps = count(LAST + 1)
    with live.journal.open("ab", buffering=0) as file:
        for _ in range(3):
            file.write(encode(h.steps(0, step := next(steps), step, 500)))
            assert next(looks) == 0.005
            assert len(feed.take(1000)) == 1
        # More than is read at a time, but no more than such a feed may be behind.
        file.write(b"".join(encode(h.steps(0, step, step, 500)) for step in islice(steps, 80)))
        assert next(looks) == 0
        assert feed.reading is None
    looks.close()
