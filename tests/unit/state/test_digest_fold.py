"""A run's digest and the rest of its journal come to the same state as all of its journal."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.digest_runs import assert_same_series, history
from tests.kit.waiting import wait_until as until
from tests.unit.state.test_digest import digest_of, write_journal
from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract import events as ev
from tuiapp.trainers.contract.events import Event, Metrics, decode, encode
from tuiapp.trainers.contract.metrics import RATE
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import digest_keeper, rank_state, readings, run_state
from tuiapp.trainers.state.curves import ALL, Curves
from tuiapp.trainers.state.digest import Digest
from tuiapp.trainers.state.efficiency import EfficiencyMeter
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise
from tuiapp.verbs.facts import read_through

SAME = (
    "run_id", "started", "ended", "lost", "status", "stop_requested", "checkpoints", "first_time", "last_time",
    "arrays", "gpus", "host", "telemetry_problems", "alerts", "failures", "stacks", "log",
    "log_count", "step", "phase", "total_steps", "test_accuracy", "facts", "nodes", "host_history",
)  # fmt: skip
SAME_OF_RANKS = (
    "pid", "device", "device_name", "uuid", "phase", "step", "loss", "last_time", "process", "cpu",
    "framework", "failure",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def fold(events: Sequence[object]) -> RunState:
    state = RunState()
    for event in events:
        apply(state, event)
    return state


def assert_same(one: RunState, other: RunState) -> None:
    for name in SAME:
        assert getattr(one, name) == getattr(other, name), name
    assert sorted(one.ranks) == sorted(other.ranks)
    for rank, first in one.ranks.items():
        second = other.ranks[rank]
        for name in SAME_OF_RANKS:
            assert getattr(first, name) == getattr(second, name), (rank, name)
        assert first.pace.seconds_per_step == pytest.approx(second.pace.seconds_per_step)
        assert first.pace.examples_per_second == pytest.approx(second.pace.examples_per_second)
        assert first.pace.step_at(one.last_time - 3) == pytest.approx(second.pace.step_at(one.last_time - 3))
    assert one.remaining() == pytest.approx(other.remaining())
    assert one.elapsed(one.last_time + 3) == pytest.approx(other.elapsed(one.last_time + 3))
    assert one.stall == other.stall
    assert_same_curves(one.curves, other.curves)
    assert one.utilization.keys() == other.utilization.keys()
    for uuid, curve in one.utilization.items():
        assert_same_series(curve.series, other.utilization[uuid].series)


def assert_same_curves(one: Curves, other: Curves) -> None:
    assert one.names.keys() == other.names.keys()
    assert (one.evaluated, one.steps_per_epoch) == (other.evaluated, other.steps_per_epoch)
    assert one.gaps.spans == other.gaps.spans
    # repr: of the epochs with a loss that is not finite, too.
    assert repr(one.epochs.rows) == repr(other.epochs.rows)
    assert (one.timeline.steps, one.timeline.times) == (other.timeline.steps, other.timeline.times)
    for name in one.names:
        assert one.ranks(name) == other.ranks(name)
        for rank in one.ranks(name):
            assert_same_series(one[rank, name], other[rank, name])


@pytest.mark.parametrize("seed", [*range(40), 390, 525])
def test_at_any_place_of_the_journal(run: RunDir, seed: int) -> None:
    dice, events = random.Random(seed), [event for each in history(seed) if (event := decode(encode(each)))]
    for number in range(20):
        place = dice.randrange(1, len(events))
        said = ev.Facts(name=f"{number}", config={f"lr{number % 7}": number}, time=events[place].time)
        events.insert(place, said)
    cut = dice.randint(1, len(events))
    digest = digest_of(run, events[:cut])
    assert_same(fold([digest, *events[cut:]]), fold(events))


def test_of_a_run_on_several_nodes(run: RunDir) -> None:
    events = [event for each in nodes.troubled() if (event := decode(encode(each)))]
    cut = len(events) - 1
    assert_same(fold([digest_of(run, events[:cut]), *events[cut:]]), fold(events))


def test_what_ailed_an_attempt_is_forgotten_with_it(run: RunDir) -> None:
    ailing = [
        *h.running(last_step=60),
        ev.Alert(kind="hang", rank=1, text="rank 1 hangs", **h.at(5)),
        ev.Stacks(rank=1, pid=4122, text="File train.py", **h.at(5)),
    ]
    again = [*ailing, h.started(attempt=2, resumed_from=29, seconds=9)]
    for events in (ailing, again):
        assert_same(fold([digest_of(run, events)]), fold(events))
    assert fold(ailing).stacks
    assert not fold(again).stacks
    assert not fold(again).alerts


def test_what_a_script_says_outlasts_its_attempt(run: RunDir) -> None:
    events: list[Event] = [h.started(), ev.Facts(name="base", config={"lr": 0.1}, total_steps=90, **h.at(1))]
    events += [ev.Facts(summary={f"epoch {n}": n}, **h.at(2)) for n in range(200)]
    for each in (events, [*events, h.started(attempt=2, seconds=9)]):
        facts = fold([digest_of(run, each)]).facts
        assert (facts.name, facts.config, facts.total_steps, len(facts.summary)) == ("base", {"lr": 0.1}, 90, 200)
        assert facts == fold(each).facts


def script_attempts() -> list[Event]:
    """A script killed at step 60, started again at 41 of its own checkpoint, and at 31 after a start that failed."""
    events: list[Event] = [h.started(2, gpus=True)]
    for attempt, first, last in ((1, 1, 60), (2, 41, 90), (3, 0, 0), (4, 31, 50)):
        begin = 100.0 * attempt
        if attempt > 1:
            events.append(h.started(2, gpus=True, attempt=attempt, resumed_from=None, seconds=begin))
        events += [h.rank_started(rank, gpus=True, seconds=begin + 1) for rank in range(2)]
        events.append(h.device_sample(0, begin + 2))
        if last:
            events.append(Metrics(rank=0, first_step=first, values={"val/f1": [0.5]}, **h.at(begin + 3)))
        for step in range(first, last, 10):
            at = h.at(begin + 4 + (step - first) / 10)
            for rank in range(2):
                losses: list[float | None] = [attempt + number / 100 for number in range(10)]
                values = {"loss": losses, "train/x": losses}
                values |= {"step_time": [0.01] * 10, "examples": [2.0] * 10}
                events.append(Metrics(rank=rank, first_step=step, values=values, **at))
            events += [h.checkpoint(step + 9, at["time"] - h.START), h.device_sample(0, at["time"] - h.START)]
    return events


@pytest.mark.nightly
def test_of_a_script_that_resumes_from_a_checkpoint_of_its_own(run: RunDir) -> None:
    events = script_attempts()
    for cut in range(1, len(events) + 1):
        assert_same(fold([digest_of(run, events[:cut]), *events[cut:]]), fold(events))
        assert_same(fold([digest_of(run, events[:cut])]), fold(events[:cut]))
    state = fold(events)
    loss = [*(1 + n / 100 for _ in range(3) for n in range(10)), *(4 + n / 100 for _ in range(2) for n in range(10))]
    assert state.curves[1, "loss"].means().tolist() == pytest.approx(loss)
    assert [one.step for one in state.checkpoints] == [10, 20, 30, 40, 50]
    # The first attempt made step 30 after 106 s, the fourth step 40 after 4 s.
    assert state.curves.timeline.seconds(np.array([30.0, 40.0])).tolist() == pytest.approx([106.0, 110.0])


def test_lines_of_the_log_that_are_no_longer_kept_count(run: RunDir) -> None:
    count = digest_keeper.LOG_LINES + 9
    lines = [ev.LogLine(rank=0, stream="stdout", text=f"line {n}", **h.at(1)) for n in range(count)]
    events = [*h.running(last_step=5), *lines]
    state = fold([digest_of(run, events)])
    assert state.log_count == fold(events).log_count > len(state.log)


@pytest.mark.parametrize("seed", range(3))
def test_of_a_long_run(run: RunDir, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than what is kept of it; the resolution, which may be half as fine from a digest, is the same here."""
    defaults: Any = Curves.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "closest", digest_keeper.BUCKETS)
    events = [event for each in history(seed, batches=700) if (event := decode(encode(each)))]
    digest = digest_of(run, events[:-50])
    assert len(digest.events) < len(events) - digest_keeper.BATCHES_PER_RANK
    assert_same(fold([digest, *events[-50:]]), fold(events))


def test_the_efficiency_of_the_whole_run(run: RunDir) -> None:
    events = history(5, batches=400)
    digest = digest_of(run, events[:-100])
    write_journal(run, events)
    meter = EfficiencyMeter()
    for event in events:
        meter.add(event)
    whole = meter.efficiency()
    assert whole.data_wait_share
    assert whole.gpu_idle_share
    found = read_through(summarise(run))[0]
    for name in whole.__dataclass_fields__:
        assert getattr(found, name) == pytest.approx(getattr(whole, name)), name
    assert digest.totals.examples > 0


def test_the_mean_loss_of_unequal_shares_is_the_batchs(run: RunDir) -> None:
    begun = h.started(2)
    begun = msgspec.structs.replace(begun, config={**begun.config, "global_batch_size": 48, "shares": "3:1"})
    steps = [
        Metrics(
            rank=rank,
            first_step=step,
            values={"loss": [loss], "examples": [size], "step_time": [0.1]},
            **h.at(1.0 + step),
        )
        for step in range(1, 21)
        for rank, loss, size in ((0, 1.0 / step, 36.0), (1, 2.0 / step, 12.0))
    ]
    wanted = [1.25 / step for step in range(1, 21)]
    for place in (0, 15, 40):
        curves = Curves(by_rank=False)
        curves.fold([digest_of(run, [begun, *steps[:place]]), *steps[place:]])
        assert curves[ALL, "loss"].means() == pytest.approx(wanted)
        # Not what is no mean over examples: the rate is that of both.
        assert curves[ALL, RATE].means() == pytest.approx([480.0] * 20)


def test_of_runs_side_by_side(run: RunDir) -> None:
    # Ranks that are gone are missing from a digest, not so where all ranks share a curve.
    events = history(5, batches=100, resized=False)
    digest_of(run, events[:-40])
    write_journal(run, events)
    feed = CompareFeed([summarise(run)])
    feed.start()
    until(lambda: feed.runs[0].progress is None)
    straight = Curves(by_rank=False)
    straight.fold(events)  # type: ignore[arg-type]
    for name in straight.names:
        one, other = straight[-1, name], feed.runs[0].curves[-1, name]
        assert (one.first_step, one.last_step, one._width) == (other.first_step, other.last_step, other._width)
        np.testing.assert_allclose(one.means(), other.means(), rtol=1e-6)
    assert straight.timeline.times == feed.runs[0].curves.timeline.times
    feed.close()


@pytest.mark.parametrize("damage", ["none", "torn", "missing", "foreign", "newer"])
def test_a_feed_begins_with_the_digest_if_it_is_good(run: RunDir, damage: str) -> None:
    events = history(6)
    digest_of(run, events[:-30] if damage != "foreign" else history(7))
    write_journal(run, events)
    with run.journal.open("ab") as file:
        file.write(b'{"type":"metrics","ra')
    if damage == "torn":
        run.digest.write_bytes(run.digest.read_bytes()[:-100])
    elif damage == "newer":
        run.digest.write_bytes(run.digest.read_bytes().replace(b"digest 5", b"digest 6", 1))
    elif damage == "missing":
        run.digest.unlink()
    taken: list[object] = []
    feed = JournalFeed(run, poll_s=0.005, live_check_s=0.005)
    feed.start()

    def is_read() -> bool:
        taken.extend(feed.take(100))
        return feed.reading is None

    until(is_read)
    feed.close()
    assert isinstance(taken[0], Digest) == (damage == "none")
    assert len(taken) <= 31 if damage == "none" else len(taken) == len(events)
    assert_same(fold(taken), fold([event for each in events if (event := decode(encode(each)))]))


def test_a_feed_of_the_whole_journal_takes_no_digest(run: RunDir) -> None:
    events: list[Event] = history(6)
    digest_of(run, events)
    taken: list[object] = []
    feed = JournalFeed(run, poll_s=0.005, whole=True)
    feed.start()
    until(lambda: taken.extend(feed.take(100)) or len(taken) == len(events))  # type: ignore[func-returns-value]
    feed.close()
    assert not any(isinstance(each, Digest) for each in taken)


def test_the_efficiency_of_late(run: RunDir) -> None:
    """Averaged over half a minute, of which a digest keeps all."""
    events: list[Event] = [h.started(2, gpus=True), *(h.rank_started(rank, gpus=True) for rank in range(2))]
    for number in range(500):
        for rank in range(2):
            values: dict[str, list[float | None]] = {
                "step_time": [0.02] * 10,
                "examples": [32.0 + number] * 10,
                "data_wait": [number / 1e5] * 10,
            }
            events.append(Metrics(rank=rank, first_step=1 + 10 * number, values=values, **h.at(2 + number / 5)))
            if number % 5 == 0:
                events.append(h.device_sample(rank, 2 + number / 5))
    one, other = fold([digest_of(run, events)]).meter.efficiency(), fold(events).meter.efficiency()
    assert one.data_wait_share
    assert one.mfu
    for name in one.__dataclass_fields__:
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=0.01), name


def test_a_digest_keeps_as_much_as_views_show() -> None:
    assert digest_keeper.HISTORY >= readings.HISTORY
    assert digest_keeper.LOG_LINES >= run_state.MAX_LOG_LINES
    assert digest_keeper.CHECKPOINTS >= run_state.MAX_CHECKPOINTS
    assert digest_keeper.BATCHES_PER_RANK >= rank_state.MAX_BATCHES
    assert digest_keeper.BATCHES_PER_RANK / 5 >= run_state.EFFICIENCY_WINDOW_S
    assert RunState().alerts.maxlen == digest_keeper.ALERTS
