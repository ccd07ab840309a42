"""What a run of any length leaves: its events and their lines in the journal, made fast enough for ten million steps.

Ranks take 200 steps a second, four to an entry of the journal, and send ten entries at a time. Lines are put together
from parts that were encoded once; `check` makes sure that they are the lines that the supervisor would have written.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import (
    Event,
    HostSample,
    LogLine,
    Metrics,
    Phase,
    RankSample,
    RankStarted,
    RunEnded,
    RunStarted,
    Summary,
    decode,
    encode,
)
from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    EXAMPLES,
    LEARNING_RATE,
    LOSS,
    STEP_TIME,
    TEST_ACCURACY,
    TEST_LOSS,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state import snapshot
from tuiapp.trainers.state.fold import apply

STEPS_PER_SECOND = 200
BATCH_STEPS = 40
WINDOW = 4
ENTRIES = BATCH_STEPS // WINDOW
EPOCH = 10_000
LEVELS = 500
"""Between the first and the last loss."""

WRITE_BYTES = 4 << 20


class Stream:
    """A run that completes; its losses fall, with noise.

    Args:
        steps: Of each rank; a multiple of `BATCH_STEPS`.
        ranks: How many.
    """

    def __init__(self, steps: int, ranks: int) -> None:
        self._steps, self._ranks = steps, ranks
        self._start = time.time() - steps / STEPS_PER_SECOND - 60
        self._dice = random.Random(1)
        self._seq = 0
        self._variants = [self._variant(2.2 * math.exp(-5 * level / LEVELS)) for level in range(LEVELS)]

    def __iter__(self) -> Iterator[tuple[Event, bytes]]:
        """All events in the order of the journal, each with its line."""
        config = RunConfig(platform="cpu", devices=self._ranks, global_batch_size=32 * self._ranks)
        yield self._encoded(
            RunStarted(
                run_id="", host="box", pid=1, config=to_toml_values(config), world_size=self._ranks,
                steps_per_epoch=EPOCH, total_steps=self._steps, **self._at(0),
            )
        )  # fmt: skip
        for rank in range(self._ranks):
            yield self._encoded(RankStarted(rank=rank, pid=100 + rank, device="cpu", **self._at(0)))
            yield self._encoded(Phase(rank=rank, phase="training", **self._at(0)))
        for first in range(1, self._steps + 1, BATCH_STEPS):
            last = first + BATCH_STEPS - 1
            for rank in range(self._ranks):
                yield self.metrics(rank, first)
            if last % STEPS_PER_SECOND == 0:
                yield from map(self._encoded, self._samples(last / STEPS_PER_SECOND))
            if last % EPOCH == 0:
                yield self._encoded(self._evaluation(last))
        second = self._steps / STEPS_PER_SECOND
        summary = Summary(
            steps=self._steps, epochs=self._steps / EPOCH, loss=0.1, test_accuracy=0.9, seconds=second
        )  # fmt: skip
        yield self._encoded(RunEnded(status="completed", reason="", summary=summary, **self._at(second)))

    def metrics(self, rank: int, first: int) -> tuple[Metrics, bytes]:
        """What a rank sends of the steps from `first` on."""
        level = max(0, (first - 1) * LEVELS // self._steps - rank % 8)
        values, lows, highs, text = self._variants[level]
        second = (first + BATCH_STEPS - 1) / STEPS_PER_SECOND
        event = Metrics(
            rank=rank, first_step=first, values=values, counts=COUNTS, lows=lows, highs=highs,
            time=self._start + second, mono=100.0 + second,
        )  # fmt: skip
        self._seq += 1
        head = b'{"type":"metrics","seq":%d,"time":%a,"mono":%a,"rank":%d,"first_step":%d,'
        return event, head % (self._seq, event.time, event.mono, rank, first) + text

    def _variant(self, loss: float) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], bytes]:
        """Values, least and greatest values, and the end of the line that holds them."""
        gauss = self._dice.gauss
        losses = [0.1 + loss + 0.05 * gauss(0, 1) for _ in range(ENTRIES)]
        values = {
            LOSS: losses,
            LEARNING_RATE: [0.001] * ENTRIES,
            EXAMPLES: [32.0 * WINDOW] * ENTRIES,
            STEP_TIME: [round(0.005 + 0.0002 * gauss(0, 1), 6) for _ in range(ENTRIES)],
            DATA_WAIT: [round(0.0001 + 0.00001 * gauss(0, 1), 6) for _ in range(ENTRIES)],
        }
        lows, highs = {LOSS: [one - 0.04 for one in losses]}, {LOSS: [one + 0.04 for one in losses]}
        parts = {"values": values, "counts": COUNTS, "lows": lows, "highs": highs}
        return values, lows, highs, msgspec.json.encode(parts)[1:] + b"\n"

    def _evaluation(self, step: int) -> Metrics:
        progress = step / self._steps
        values: dict[str, list[float | None]] = {
            TEST_LOSS: [0.1 + 2 * math.exp(-5 * progress)],
            TEST_ACCURACY: [1 - 0.9 * math.exp(-5 * progress)],
            "test/examples": [10_000.0],
            "test/seconds": [0.3],
        }
        return Metrics(rank=0, first_step=step, values=values, **self._at(step / STEPS_PER_SECOND))

    def _samples(self, second: float) -> Iterator[Event]:
        at = self._at(second)
        used = int(3e9 + 1e8 * math.sin(second))
        yield HostSample(
            cpu_percent=50 + 20 * math.sin(second), cpu_cores=8, load_1m=4.0, memory_used_bytes=used,
            memory_total_bytes=16 << 30, disk_free_bytes=40 << 30, **at,
        )  # fmt: skip
        for rank in range(self._ranks):
            yield RankSample(rank=rank, cpu_percent=95 + math.sin(second + rank), rss_bytes=400 << 20, threads=8, **at)
        if int(second) % 5 == 0:
            text = f"second {second:.0f} passed"
            yield LogLine(rank=int(second) // 5 % self._ranks, stream="stdout", text=text, **at)

    def _at(self, second: float) -> dict[str, Any]:
        return {"time": self._start + second, "mono": 100.0 + second}

    def _encoded(self, event: Event) -> tuple[Event, bytes]:
        self._seq += 1
        return event, encode(msgspec.structs.replace(event, seq=self._seq))


COUNTS = [WINDOW] * ENTRIES


def check(event: Event, line: bytes) -> None:
    """Make sure that a line is that of its event."""
    read = decode(line)
    assert read is not None
    assert encode(msgspec.structs.replace(event, seq=read.seq)) == line


def record(run: RunDir, steps: int, ranks: int) -> int:
    """Write journal and digest of a completed run; returns the journal's size in bytes."""
    state, waiting, size = snapshot.new_state(), bytearray(), 0
    with run.journal.open("wb", buffering=0) as file:
        for number, (event, line) in enumerate(Stream(steps, ranks)):
            if number < 1000:
                check(event, line)
            apply(state, event)
            waiting += line
            if len(waiting) >= WRITE_BYTES:
                size += file.write(waiting)
                waiting.clear()
        size += file.write(waiting)
    snapshot.save(run, state, size, line)
    return size
