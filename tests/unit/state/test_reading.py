"""Until a reader has reached the journal's end, nothing is said of what the run does now."""

from __future__ import annotations

import time
from itertools import count, islice
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.digest_runs import digest_of, write_journal
from tuiapp.feeds import feed as feeds
from tuiapp.feeds.feed import JournalFeed
from tuiapp.screens.run_reader import RunReader
from tuiapp.trainers.contract.events import Alert, AnyEvent, encode
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import follow
from tuiapp.trainers.state.condition import headline
from tuiapp.view.rank_list import rank_rows

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
