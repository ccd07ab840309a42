"""The replay's feed, with a clock that the tests move and a journal that is there at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit import histories as h
from tuiapp.feeds.feed import SPEEDS, ReplayFeed
from tuiapp.trainers.contract.events import AnyEvent, Event
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter
from tuiapp.trainers.contract.rundir import RunDir


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Reads a journal without a thread."""

    def __init__(self, run: RunDir) -> None:
        self._reader = JournalReader(run.journal)
        self._waiting: list[AnyEvent] = []
        self.lost = self.removed = False
        self.trouble = ""
        self.reading = None
        self.closed = False

    def start(self) -> None:
        pass

    def take(self, limit: int) -> list[AnyEvent]:
        self._waiting += self._reader.read()
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return taken

    def close(self) -> None:
        self.closed = True


def journal(path: Path, events: Sequence[Event]) -> RunDir:
    run = RunDir(path)
    writer = JournalWriter(run.journal)
    writer.append(events)
    writer.close()
    return run


def drain(feed: ReplayFeed) -> list[Event]:
    taken: list[Event] = []
    while events := feed.take(16):
        taken += events
    return taken


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    # A busy machine may take longer to find out when the run began than a screen waits.
    monkeypatch.setattr("tuiapp.feeds.feed.KNOWN_S", 60.0)
    return Clock()


def replay(path: Path, clock: Clock, events: Sequence[Event], speed: float = 1.0) -> ReplayFeed:
    feed = ReplayFeed(journal(path, events), speed, clock=clock, source=Source)
    feed.start()
    return feed


def test_events_come_when_their_moment_comes(tmp_path: Path, clock: Clock) -> None:
    feed = replay(tmp_path, clock, h.completed())
    seen = drain(feed)
    assert [event.time for event in seen] == [h.START]
    assert (feed.position, feed.duration) == (0.0, 17.5)
    clock.now += 3.01
    seen += drain(feed)
    assert max(event.time for event in seen) == h.START + 3.0
    clock.now += 100
    seen += drain(feed)
    assert [event.seq for event in seen] == list(range(1, len(h.completed()) + 1))
    assert feed.at_end
    assert feed.position == 17.5


@pytest.mark.parametrize("speed", [0.5, 4.0, 64.0])
def test_the_speed_is_kept(tmp_path: Path, clock: Clock, speed: float) -> None:
    feed = replay(tmp_path, clock, h.completed(), speed)
    drain(feed)
    clock.now += 8.0 / speed
    drain(feed)
    assert feed.position == pytest.approx(8.0)


def test_pause_and_another_speed(tmp_path: Path, clock: Clock) -> None:
    feed = replay(tmp_path, clock, h.completed())
    drain(feed)
    clock.now += 2.0
    feed.toggle_pause()
    clock.now += 50.0
    assert (feed.paused, feed.position) == (True, 2.0)
    feed.change_speed(1)
    feed.toggle_pause()
    clock.now += 1.0
    assert (feed.speed, feed.position) == (2.0, 4.0)
    for _ in range(30):
        feed.change_speed(1)
    assert feed.speed == SPEEDS[-1]
    for _ in range(30):
        feed.change_speed(-1)
    assert feed.speed == SPEEDS[0]


def test_going_back_begins_anew_and_gives_the_same_events(tmp_path: Path, clock: Clock) -> None:
    feed = replay(tmp_path, clock, h.completed())
    drain(feed)
    feed.seek(9.0)
    first = drain(feed)
    assert feed.generation == 0
    feed.seek(15.0)
    drain(feed)
    feed.seek(9.0)
    assert feed.generation == 1
    assert drain(feed)[1:] == first
    feed.seek(-5.0)
    assert feed.position == 0.0
    feed.seek(1e9)
    assert feed.position == feed.duration


def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path, clock: Clock) -> None:
    events = h.completed()
    feed = replay(tmp_path, clock, events[:-20], speed=1024.0)
    drain(feed)
    clock.now += 60
    drain(feed)
    assert feed.at_end
    journal(tmp_path, events[-20:])
    clock.now += 0.1
    drain(feed)
    assert feed.position == 17.5
