"""Journals with all that may stand in them, read ahead and read here, and whether both come to the same."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from tests import histories as h
from tests import interrupted
from tests.state.test_feed import until
from trainers.contract.events import Event, LogLine, RankSample, Steps, encode
from trainers.contract.journal import JournalReader
from trainers.contract.rundir import RunDir
from tuiapp.feeds.ahead_feed import AheadFeed
from tuiapp.state.columns import STEP_METRICS
from tuiapp.state.run_state import RunState
from tuiapp.state.series import Series


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
            events += interrupted.resumed(world, step=back, seconds=second + 10)
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


def read_with(feed: AheadFeed, run: RunDir, told: list[object] | None = None) -> RunState:
    """The state once all is read.

    Args:
        feed: Takes it from there.
        run: The run.
        told: To this is added all that the feed gave.
    """
    state = RunState()

    def take() -> bool:
        found = feed.take(64)
        for each in found:
            state.apply(each)
        if told is not None:
            told.extend(found)
        return bool(found)

    def done() -> bool:
        take()
        tail = feed._tail
        return tail is not None and tail._reader.offset == run.journal.stat().st_size and not tail.behind

    until(done)
    while take():
        pass
    return state


def assert_same(one: RunState, other: RunState) -> None:
    for name in ("started", "ended", "first_time", "last_time", "status", "log", "log_count", "host", "evaluations"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.gaps.spans == other.gaps.spans
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
