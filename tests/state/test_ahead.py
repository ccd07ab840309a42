"""A journal that is read ahead by a process of its own comes to the same as one that is read here."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from tests import histories as h
from tests.benchmarks.long_run import record
from tests.state.test_feed import until
from trainers.contract.events import AnyEvent, Event, LogLine, RankSample, Steps, decode, encode
from trainers.contract.journal import JournalReader
from trainers.contract.rundir import RunDir
from tuiapp.feeds import ahead
from tuiapp.feeds.ahead import ReadAhead, read_ahead
from tuiapp.feeds.ahead_feed import AheadFeed
from tuiapp.feeds.ahead_worker import Message, decoder, digest
from tuiapp.state.columns import STEP_METRICS
from tuiapp.state.digest import Digest, digested
from tuiapp.state.entries import gather
from tuiapp.state.run_state import RunState
from tuiapp.state.series import Series

SMALL_PARTS = """
import os, sys
import trainers.contract.journal
from tuiapp.feeds import ahead_worker

trainers.contract.journal.READ_BYTES = ahead_worker.MESSAGE_BYTES = 20_000
left, write = {limit}, os.write

def write_some(fd, data):
    global left
    written = write(fd, data[:left])
    left -= written
    if not left:
        os.kill(os.getpid(), 9)
    return written

os.write = write_some
ahead_worker.main(sys.argv[1])
"""
"""Reads a journal in small parts, and is killed after so many bytes of what it says."""

LINGERS = "import sys, time; from tuiapp.feeds import ahead_worker; ahead_worker.main(sys.argv[1]); time.sleep(600)"
"""Reads a journal, and stays."""


def history(seed: int) -> list[Event]:
    """A run with all that can stand between batches of steps, and batches of all kinds."""
    dice = random.Random(seed)
    world, windows = dice.choice([1, 3]), dice.random() < 0.5
    second, step = 2.0, 0
    events: list[Event] = [*h.running(world, last_step=0, gpus=dice.random() < 0.5)]
    for number in range(60):
        size = dice.randint(1, 12)
        for rank in range(world):
            events += [_batch(dice, rank, step + 1, size, second + dice.random(), windows=windows)]
            events += dice.choices([[], [_between(dice, rank, step, second)]], [3, 1])[0]
        step += size * (4 if windows else 1)
        second += dice.random()
        if number == 35:
            back = step - 20
            events += [h.checkpoint(back, second), h.ended("stopped", second, step=step)]
            events += h.resumed(world, step=back, seconds=second + 10)
            step, second, windows = back + 10, second + 14, not windows
    return [*events, h.ended("completed", second)]


def _batch(dice: random.Random, rank: int, first: int, size: int, second: float, *, windows: bool) -> Event:
    losses = [dice.choice([None, 0.5, dice.random(), dice.random()]) for _ in range(size)]
    event = Steps(
        rank=rank,
        # Some come late: out of order, they go their own way.
        first_step=max(1, first - 30) if dice.random() < 0.03 else first,
        losses=losses,
        seconds=[0.05 + dice.random() / 100 for _ in losses],
        examples=[32] * size,
        learning_rates=[0.1 / first] * size,
        counts=[4] * size if windows else None,
        losses_min=[loss and loss / 2 for loss in losses] if windows else None,
        losses_max=[loss and loss * 2 for loss in losses] if windows else None,
        gradient_norms=[dice.random() for _ in losses] if rank == 0 and dice.random() < 0.7 else None,
        data_wait_s=dice.choice([None, 0.01]),
        **h.at(second),
    )
    odd: list[dict[str, object]] = [
        {"losses": []},
        {"counts": [1] * (size + 1)},
        {"learning_rates": []},
        {"examples": [2**70] * size},
        {"first_step": 2**60},
        {"first_step": -1},
        {"rank": 10_000},
    ]
    return msgspec.structs.replace(event, **dice.choice(odd)) if dice.random() < 0.05 else event


def _between(dice: random.Random, rank: int, step: int, second: float) -> Event:
    sample = RankSample(rank=rank, cpu_percent=dice.random(), rss_bytes=1 << 20, threads=3, **h.at(second))
    line = LogLine(rank=rank, stream="stdout", text=f"at {step}", **h.at(second))
    return dice.choice([sample, line, h.host_sample(second), h.device_sample(0, second), h.evaluation(step, second)])


def write(run: RunDir, events: Iterable[Event]) -> None:
    """Write a journal that has some damage."""
    lines = [encode(event) for event in events]
    lines[20:20] = [b"\xff\xfe no event\n", b"\n", b'{"type":"steps","rank":\n', b'{"type":"from-the-future"}\n']
    with run.journal.open("ab") as file:
        file.writelines(lines)


def read_here(run: RunDir) -> RunState:
    state, reader = RunState(), JournalReader(run.journal)
    while events := reader.read():
        for event in events:
            state.apply(event)
    return state


def read_with(feed: AheadFeed, run: RunDir) -> RunState:
    """The state once all is read."""
    state = RunState()

    def done() -> bool:
        for each in feed.take(64):
            state.apply(each)
        tail = feed._tail
        return tail is not None and tail._reader.offset == run.journal.stat().st_size and not tail.behind

    until(done)
    while told := feed.take(64):
        for each in told:
            state.apply(each)
    return state


def assert_same(one: RunState, other: RunState) -> None:
    for name in ("started", "ended", "first_time", "last_time", "status", "log", "log_count", "host", "evaluations"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("checkpoints", "alerts", "failures", "host_cpu", "lost", "telemetry_problems"):
        assert getattr(one, name) == getattr(other, name), name
    assert sorted(one.ranks) == sorted(other.ranks)
    for rank, first in one.ranks.items():
        second = other.ranks[rank]
        for name in ("pid", "device", "phase", "step", "loss", "learning_rate", "last_time", "process", "cpu"):
            assert getattr(first, name) == getattr(second, name), (rank, name)
        assert first.pace.seconds_per_step == pytest.approx(second.pace.seconds_per_step)
        assert first.pace.examples_per_second == pytest.approx(second.pace.examples_per_second)
        assert first.pace.step_at(one.last_time - 3) == pytest.approx(second.pace.step_at(one.last_time - 3))
        for metric in STEP_METRICS:
            _assert_same_curve(first.curves[metric], second.curves[metric])
    assert (one.timeline._steps, one.timeline._times) == (other.timeline._steps, other.timeline._times)
    assert one.utilization.keys() == other.utilization.keys()
    for uuid, curve in one.utilization.items():
        _assert_same_curve(curve.series, other.utilization[uuid].series)


def _assert_same_curve(one: Series, other: Series) -> None:
    assert (one.first_step, one.last_step, one.resolution) == (other.first_step, other.last_step, other.resolution)
    np.testing.assert_array_equal(one._keys, other._keys)
    np.testing.assert_allclose(one._table, other._table, rtol=1e-12)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine may take long to start a process, and to end one."""
    monkeypatch.setattr(ahead, "PATIENCE_S", 60.0)
    monkeypatch.setattr(ahead, "END_S", 60.0)


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
    state, ordinary = read_with(feed, run), read_here(run)
    assert_same(state, ordinary)
    assert state.revision < ordinary.revision / 3
    feed.close()


@pytest.mark.parametrize("limit", [2, 40_000, 100_000, 10**9])
def test_a_reader_that_is_killed_midway(run: RunDir, limit: int) -> None:
    write(run, [event for seed in (3, 4, 5) for event in history(seed)])
    feed = AheadFeed(run, ReadAhead(run.journal, ("-P", "-c", SMALL_PARTS.format(limit=limit))))
    feed.start()
    assert_same(read_with(feed, run), read_here(run))
    feed.close()


JUNK = [
    b"no message at all",
    b"",
    (5).to_bytes(4, "big") + b"\xc1abcd",
    *[
        len(message).to_bytes(4, "big") + message
        for message in map(msgspec.msgpack.encode, [Message(10**12, []), Message(0, []), [5, [{"type": "digest"}]]])
    ],
]


@pytest.mark.parametrize("junk", JUNK)
def test_a_reader_that_says_what_is_no_message(run: RunDir, junk: bytes) -> None:
    write(run, history(1))
    script = f"import sys; sys.stdout.buffer.write({junk!r})"
    feed = AheadFeed(run, ReadAhead(run.journal, ("-c", script)))
    feed.start()
    assert_same(read_with(feed, run), read_here(run))
    feed.close()


def test_a_reader_that_hangs(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PATIENCE_S", 0.05)
    write(run, history(1))
    reader = ReadAhead(run.journal, ("-c", "import time; time.sleep(600)"))
    feed = AheadFeed(run, reader)
    feed.start()
    assert_same(read_with(feed, run), read_here(run))
    assert gone(reader.pid)
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


@pytest.mark.parametrize("started", [True, False])
def test_closed_early_it_leaves_no_process(run: RunDir, started: bool) -> None:
    record(run, 12_000)
    # It does not end before it is closed, however little there is to read.
    reader = ReadAhead(run.journal, ("-P", "-c", LINGERS))
    feed = AheadFeed(run, reader)
    if started:
        feed.start()
        until(lambda: bool(feed.take(1)))
    feed.close()
    assert not psutil.pid_exists(reader.pid)
    if started:
        feed._thread.join(30)
        assert not feed._thread.is_alive()
        assert feed._tail is None


def test_it_does_not_outlive_the_dashboard(run: RunDir) -> None:
    record(run, 12_000)
    script = (
        "import sys; from pathlib import Path; from tuiapp.feeds.ahead import ReadAhead;"
        "print(ReadAhead(Path(sys.argv[1])).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(run.journal)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as dashboard:
        assert dashboard.stdout
        pid = int(dashboard.stdout.readline())
        dashboard.kill()
    until(lambda: gone(pid))


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
