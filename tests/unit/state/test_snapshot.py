"""The digest: what it and the rest of a journal come to; what is not whole is none; how large it may be."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.digest_runs import digest_of, history, write_journal
from tests.kit.folding import fold
from tests.kit.same_states import assert_same
from tests.kit.waiting import wait_until as until
from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract import events as ev
from tuiapp.trainers.contract.events import Event, LogLine, Metrics, decode, encode
from tuiapp.trainers.contract.metrics import RATE, TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import snapshot
from tuiapp.trainers.state.curves import ALL, LEAST_BUCKETS, MAX_CURVES, Curves
from tuiapp.trainers.state.readings import MOST_GPUS
from tuiapp.trainers.state.run_state import MAX_LOG_LINES, RunState
from tuiapp.trainers.state.series import Series
from tuiapp.trainers.state.snapshot import MAGIC, MAX_BYTES, load
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.timeline import Earlier


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.mark.parametrize("seed", [*range(20), 390, 525])
def test_at_any_place_of_the_journal(run: RunDir, seed: int) -> None:
    dice, events = random.Random(seed), [event for each in history(seed) if (event := decode(encode(each)))]
    for number in range(20):
        place = dice.randrange(1, len(events))
        said = ev.Facts(name=f"{number}", config={f"lr{number % 7}": number}, time=events[place].time)
        events.insert(place, said)
    cut = dice.randint(1, len(events))
    assert_same(fold([digest_of(run, events[:cut]), *events[cut:]]), fold(events))


def test_of_a_run_on_several_nodes(run: RunDir) -> None:
    events = [event for each in nodes.troubled() if (event := decode(encode(each)))]
    cut = len(events) - 1
    assert_same(fold([digest_of(run, events[:cut]), *events[cut:]]), fold(events))


def test_what_a_view_knows_from_elsewhere_stays(run: RunDir) -> None:
    state = fold([])
    state.replayed, state.newer = True, "of a later version"
    state.adopt(digest_of(run, history(1)))
    assert (state.replayed, state.newer, bool(state.step)) == (True, "of a later version", True)


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
        curves = digest_of(run, [begun, *steps[:place]]).curves.joined()
        curves.fold(steps[place:])
        assert curves[ALL, "loss"].means() == pytest.approx(wanted)
        # Not what is no mean over examples: the rate is that of both.
        assert curves[ALL, RATE].means() == pytest.approx([480.0] * 20)


def test_of_runs_side_by_side(run: RunDir) -> None:
    # Ranks that are gone are missing from a digest, not so where all ranks share a curve.
    events = history(5, batches=100, resized=False, late=False)
    digest_of(run, events[:-40])
    write_journal(run, events)
    feed = CompareFeed([summarise(run)])
    feed.start()
    until(lambda: feed.runs[0].progress is None)
    straight = Curves(by_rank=False)
    straight.fold(events)  # type: ignore[arg-type]
    # Of a step that was evaluated twice either both values count, or the last.
    for name in [name for name in straight.names if not name.startswith("test/")]:
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
        run.digest.write_bytes(run.digest.read_bytes().replace(b"digest 7", b"digest 8", 1))
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
    assert isinstance(taken[0], RunState) == (damage == "none")
    assert len(taken) <= 31 if damage == "none" else len(taken) == len(events)
    assert_same(fold(taken), fold([event for each in events if (event := decode(encode(each)))]))


def test_what_is_kept_is_bounded(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "ALL_BUCKETS", 3000)
    lines = [LogLine(rank=0, stream="stdout", text=f"line {n}", **h.at(1)) for n in range(MAX_LOG_LINES + 9)]
    state = digest_of(run, [*history(4, batches=6000), *lines])
    assert run.digest.stat().st_size < 1e6 < run.journal.stat().st_size / 5
    assert sum(len(series) for *_, series in state.curves) <= 3000
    assert (len(state.log), state.log[-1].text) == (MAX_LOG_LINES, lines[-1].text)
    assert state.log_count > MAX_LOG_LINES


def test_the_largest_digest_is_one() -> None:
    one = Series()
    one.add([1], [1.0])
    bucket = sum(map(len, one.stored[4:]))
    assert (MAX_CURVES + MOST_GPUS) * LEAST_BUCKETS * bucket < MAX_BYTES


def test_a_damaged_digest_is_none(run: RunDir) -> None:
    digest_of(run, history(1))
    whole, dice = run.digest.read_bytes(), random.Random(1)
    assert load(run)
    for length in [0, 1, 15, 16, 24, 25, len(whole) - 1, *(dice.randrange(len(whole)) for _ in range(100))]:
        run.digest.write_bytes(whole[:length])
        assert load(run) is None, length
    for place in [*range(60), *(dice.randrange(len(whole)) for _ in range(200))]:
        run.digest.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << dice.randrange(8)]) + whole[place + 1 :])
        assert load(run) is None, place
    run.digest.write_bytes(whole + b"x")
    assert load(run) is None
    run.digest.unlink()
    assert load(run) is None
    run.digest.mkdir()
    assert load(run) is None


@pytest.mark.parametrize("version", [b"6", b"8"])
def test_a_digest_of_another_version_is_none(run: RunDir, version: bytes) -> None:
    digest_of(run, history(1))
    run.digest.write_bytes(run.digest.read_bytes().replace(MAGIC, MAGIC.replace(b"7", version), 1))
    assert load(run) is None


def test_a_digest_of_another_journal_is_none(run: RunDir) -> None:
    events = history(1)
    digest_of(run, events)
    journal = run.journal.read_bytes()
    run.journal.write_bytes(journal + b'{"type":"lo')
    assert load(run)
    last = journal.rindex(b"\n", 0, -1) + 1
    for other in (b"", journal[:last], journal[:-1], journal[: last + 9] + b"7" + journal[last + 10 :]):
        run.journal.write_bytes(other)
        assert load(run) is None
    write_journal(run, history(2, batches=200))
    assert load(run) is None
    run.journal.unlink()
    assert load(run) is None


@pytest.mark.parametrize("restored", [False, True])
def test_what_earlier_attempts_count_for(run: RunDir, restored: bool) -> None:
    """All up to the step from which the present one resumes; each attempt's first epoch says nothing of the speed."""
    first = h.running(last_step=100)
    curves = digest_of(run, first).curves if restored else fold(first).curves
    assert curves.earlier == Earlier()

    def resume(attempt: int, step: int | None, seconds: float) -> Earlier:
        begun = h.started(attempt=attempt, resumed_from=step, seconds=seconds)
        curves.fold([begun])
        return curves.earlier

    found = resume(2, 58, 60)
    evaluations = [h.evaluation(epoch, 0).values for epoch in (1, 2)]
    best = (min(one[TEST_LOSS][0] or 0 for one in evaluations), max(one[TEST_ACCURACY][0] or 0 for one in evaluations))
    assert found.evaluated[:2] == best
    assert found.timed_steps == 29
    assert found.seconds == pytest.approx(4.9)
    assert found.timed_seconds == pytest.approx(29 * 0.05)
    for rank in range(2):
        curves.fold([h.steps(rank, 59, 118, 70.0, pace=0.1)])
    # 31 of its 60 steps are beyond its first epoch, and all of it counts as long as it is not known from where on.
    found = resume(3, None, 200)
    assert found.timed_steps == 29 + 31
    assert found.seconds == pytest.approx(4.9 + 10)
    assert found.timed_seconds == pytest.approx(29 * 0.05 + 31 * 0.1)
    assert resume(4, 0, 300) == Earlier()
