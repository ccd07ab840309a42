"""Journals with all that may stand in them, for what is made of them in two ways."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from tests.kit import histories as h
from tuiapp.trainers.contract.events import (
    Alert,
    CheckpointRequested,
    Differing,
    Event,
    FrameworkMemory,
    Held,
    InitialWeights,
    LogLine,
    Metrics,
    Phase,
    RankFailed,
    RankSample,
    Replicas,
    Shard,
    Sharding,
    Stacks,
    StopRequested,
    TelemetrySource,
    encode,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import snapshot
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.series import LOW, Series


def assert_same_series(one: Series, other: Series) -> None:
    """The same buckets; what was summed up in another order differs in the last digits."""
    assert (one.first_step, one.last_step, one._width) == (other.first_step, other.last_step, other._width)
    np.testing.assert_array_equal(one._keys, other._keys)
    np.testing.assert_allclose(one._table[LOW:], other._table[LOW:], rtol=1e-6)
    # Which of a bucket's values is its last depends, where some come late, on how many are taken in together.
    close = np.isclose(one._table[:LOW], other._table[:LOW], rtol=1e-6, equal_nan=True)
    assert close.size - np.count_nonzero(close) <= len(one) / 100


def write_journal(run: RunDir, events: Sequence[Event]) -> list[bytes]:
    lines = [encode(event) for event in events]
    run.journal.write_bytes(b"".join(lines))
    return lines


def digest_of(run: RunDir, events: Sequence[Event]) -> RunState:
    """Writes a journal and its digest, and reads that as a view does."""
    state, lines = snapshot.new_state(), write_journal(run, events)
    for event in events:
        apply(state, event)
    snapshot.save(run, state, sum(map(len, lines)), lines[-1])
    found = snapshot.load_to_watch(run)
    assert found is not None
    return found.state


def history(seed: int, batches: int = 60, *, resized: bool = True, late: bool = True) -> list[Event]:
    """A run of several attempts, of other numbers of ranks if `resized`: values of all kinds, and all else between."""
    dice = random.Random(seed)
    world, windows, gpus = dice.choice([1, 3]), dice.random() < 0.5, dice.random() < 0.6
    second, step, attempt = 2.0, 0, 1
    events: list[Event] = [h.started(world, gpus=gpus)]
    events += [h.rank_started(rank, gpus=gpus) for rank in range(world)]
    for number in range(batches):
        size = dice.randint(1, 12)
        for rank in range(world):
            events.append(_values(dice, rank, step + 1, size, second + dice.random(), windows=windows, late=late))
            events += [_between(dice, rank, step, second) for _ in range(dice.choice([0, 1, 1, 3]))]
        step += size * (4 if windows else 1)
        second += dice.choice([0.2, 1.0, dice.random() * 20])
        if dice.random() < 1.5 / batches:
            back = max(0, step - dice.randint(0, 60))
            events += [h.checkpoint(back, second), h.ended("stopped", second, step=step)]
            attempt, second, step = attempt + 1, second + 10, back
            world = dice.choice([world, world, 2]) if resized else world
            events.append(h.started(world, gpus=gpus, attempt=attempt, resumed_from=back, seconds=second))
            events += [h.rank_started(rank, gpus=gpus, seconds=second) for rank in range(world)]
            windows = not windows
        if number == batches - 1:
            events.append(h.ended("completed", second, step=step))
    return events


def _values(
    dice: random.Random, rank: int, first: int, size: int, second: float, *, windows: bool, late: bool
) -> Event:
    losses = [dice.choice([None, 0.5, dice.random(), dice.random()]) for _ in range(size)]
    values: dict[str, list[float | None]] = {
        "loss": losses,
        "lr": [0.1 / first] * size,
        "examples": [32.0 * (4 if windows else 1)] * size,
        "step_time": [0.05 + dice.random() / 100 for _ in losses],
    }
    if rank == 0:
        values["data_wait"] = [0.01] * size
    if dice.random() < 0.2:
        values = {"train/ppl": losses}
    return Metrics(
        rank=rank,
        # Some come late: out of order.
        first_step=max(1, first - 30) if dice.random() < 0.03 and late else first,
        values=values,
        counts=[4] * size if windows else None,
        lows={"loss": [loss and loss / 2 for loss in losses]} if windows else None,
        highs={"loss": [loss and loss * 2 for loss in losses]} if windows else None,
        **h.at(second),
    )


def _between(dice: random.Random, rank: int, step: int, second: float) -> Event:
    at = h.at(second)
    index = [(0, 4)]
    shard = Shard(rank=rank, device="cpu", index=index, bytes=16)
    ended = dice.random() < 0.4
    kind = dice.choice(["hang", "thermal"])
    kinds: list[Callable[[], Event]] = [
        lambda: RankSample(rank=rank, cpu_percent=dice.random(), rss_bytes=dice.choice([0, 1 << 20]), threads=3, **at),
        lambda: LogLine(rank=rank, stream="stdout", text=f"at {step}", **at),
        lambda: h.host_sample(second),
        lambda: h.device_sample(dice.randint(0, 1), second),
        lambda: Metrics(
            rank=0,
            first_step=max(1, step),
            values={"test/loss": [dice.choice([None, 0.3])], "test/accuracy": [dice.random()], "test/seconds": [0.2]},
            **at,
        ),
        lambda: h.checkpoint(step, second),
        lambda: h.predictions(step, second),
        lambda: Phase(rank=rank, phase=dice.choice(["training", "evaluating", "checkpointing"]), **at),
        lambda: FrameworkMemory(rank=rank, used_bytes=dice.randint(1, 9), **at),
        lambda: TelemetrySource(source="NVML", problem=dice.choice(["", "gone"]), **at),
        lambda: Alert(kind=kind, rank=rank, text="ouch", ended=ended, **at),
        lambda: Stacks(rank=rank, pid=1, text="File …", **at),
        lambda: StopRequested(by="command", **at),
        lambda: CheckpointRequested(by="command", **at),
        lambda: RankFailed(rank=rank, exit_code=1, error="no", **at),
        lambda: Held(rank=rank, device="cpu", held={"parameters": dice.randint(1, 9)}, whole={"parameters": 9}, **at),
        lambda: Replicas(step=step, replicas=2, arrays=3, differing=dice.choice([[], [Differing(rank, "w")]]), **at),
        lambda: InitialWeights(source="x.safetensors", arrays=9, matched=dice.randint(1, 9), **at),
        lambda: Sharding(
            array=dice.choice(["batch", "labels"]), shape=[4], dtype=dice.choice(["int64", "float32"]),
            mesh={"batch": 1}, spec=[None], shards=[shard], **at,
        ),
    ]  # fmt: skip
    return dice.choice(kinds)()
