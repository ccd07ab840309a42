"""Journals of long runs, as ranks at 200 steps a second each leave them."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kit.reported import evaluation_event, step_event
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
)
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.contract.rundir import RunDir

RANKS = 8
STEPS_PER_SECOND = 200
FLUSH_S = 0.2
"""How often a rank sends what it has."""

WINDOW = 4
"""Steps that share an entry: the journal keeps 50 entries a second."""

EPOCH = 1000


class Run:
    """Makes the events of a run whose losses fall, with noise.

    Args:
        total: Its steps.
        start: When it began, in seconds since the epoch.
        window: Steps per entry; 1 keeps each step.
        ranks: How many ranks it has.
    """

    def __init__(self, total: int, start: float, window: int = WINDOW, ranks: int = RANKS) -> None:
        self._total, self._start, self._window, self._ranks = total, start, window, ranks
        self._dice = random.Random(1)

    def beginning(self, run_id: str) -> list[Event]:
        """Up to the first step."""
        values = to_toml_values(RunConfig(platform="cpu", devices=self._ranks))
        events: list[Event] = [
            RunStarted(
                run_id=run_id, host="box", pid=1, config=values, world_size=self._ranks, steps_per_epoch=EPOCH,
                total_steps=self._total, **self._at(0),
            )
        ]  # fmt: skip
        for rank in range(self._ranks):
            events.append(RankStarted(rank=rank, pid=100 + rank, device="cpu", **self._at(0)))
            events.append(Phase(rank=rank, phase="training", **self._at(0)))
        return events

    def flush(self, first: int) -> list[Event]:
        """What all ranks send of a fifth of a second, from step `first` on."""
        count = min(round(STEPS_PER_SECOND * FLUSH_S), self._total - first + 1)
        second = (first + count - 1) / STEPS_PER_SECOND
        events: list[Event] = [self._steps(rank, first, count, second) for rank in range(self._ranks)]
        if (first - 1) % STEPS_PER_SECOND == 0:
            events += self._samples(second)
        if (first + count - 1) % EPOCH == 0:
            epoch = (first + count - 1) // EPOCH
            accuracy = 1 - 0.9 * math.exp(-epoch / 20)
            loss = 0.1 + 2 * math.exp(-epoch / 20)
            events.append(
                evaluation_event(first + count - 1, loss, accuracy, examples=10_000, seconds=0.3, **self._at(second))
            )
        return events

    def end(self) -> list[Event]:
        """What stands last."""
        second = self._total / STEPS_PER_SECOND
        summary = Summary(steps=self._total, epochs=self._total / EPOCH, loss=0.1, test_accuracy=0.9, seconds=second)
        return [RunEnded(status="completed", reason="", summary=summary, **self._at(second))]

    def _at(self, second: float) -> dict[str, Any]:
        return {"time": self._start + second, "mono": 100.0 + second}

    def _steps(self, rank: int, first: int, count: int, second: float) -> Metrics:
        gauss, window = self._dice.gauss, self._window
        entries = -(-count // window)
        level = 0.1 + 2.2 * math.exp(-first / 20_000)
        losses = [level + 0.05 * gauss(0, 1) for _ in range(entries)]
        spread = 0.03 + 0.02 * self._dice.random()
        return step_event(
            rank,
            first,
            losses,
            seconds=[round(0.005 + 0.0002 * gauss(0, 1), 6) for _ in range(entries)],
            examples=32 * window,
            counts=[window] * entries if window > 1 else None,
            lows={LOSS: [loss - spread for loss in losses]} if window > 1 else None,
            highs={LOSS: [loss + spread for loss in losses]} if window > 1 else None,
            **self._at(second),
        )

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
            rank = int(second) // 5 % self._ranks
            yield LogLine(rank=rank, stream="stdout", text=f"second {second:.0f} passed", **at)


def go_on(run: RunDir, past_steps: int, seconds: float, ranks: int = RANKS) -> None:
    """Hold a run's lock and write it as it goes on, at its own pace."""
    held = run.take_lock()
    assert held
    total = past_steps + 10_000_000
    made = Run(total, time.time() - past_steps / STEPS_PER_SECOND, ranks=ranks)
    batch = round(STEPS_PER_SECOND * FLUSH_S)
    writer = JournalWriter(run.journal)
    writer.append(made.beginning(run.run_id))
    for first in range(1, past_steps + 1, batch):
        writer.append(made.flush(first))
    began = time.monotonic()
    print("ready", flush=True)
    first = past_steps + 1
    while time.monotonic() - began < seconds:
        # The ranks' batches come apart, as those of real ranks do.
        events = made.flush(first)
        share = FLUSH_S / len(events)
        for number, event in enumerate(events):
            due = began + (first - past_steps - 1) / STEPS_PER_SECOND + number * share
            time.sleep(max(0.0, due - time.monotonic()))
            writer.append([event])
        first += batch


def main(arguments: Sequence[str] = sys.argv[1:]) -> None:
    """`python -m tests.bench.long_run DIRECTORY PAST_STEPS SECONDS [RANKS]`: a run that goes on for so long."""
    path, past, seconds, *ranks = arguments
    go_on(RunDir(Path(path)), int(past), float(seconds), *map(int, ranks))


if __name__ == "__main__":
    main()
