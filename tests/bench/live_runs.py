"""Journals, digests and statuses of many live runs, as the supervisors of small runs write them."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.config.run_config import RunConfig, to_toml, to_toml_values
from tuiapp.trainers.contract.events import Event, Phase, RankStarted, RunStarted
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.journal_keeper import DigestWriter, StatusWriter

RANKS = 2
STEPS_PER_SECOND = 20
FLUSH_S = 0.2
"""How often a rank sends what it has: four steps."""

EPOCH = 200
STEPS = round(STEPS_PER_SECOND * FLUSH_S)


class LiveRun:
    """A run with a supervisor's lock, whose losses fall at a rate of its own."""

    def __init__(self, path: Path, number: int, past_steps: int) -> None:
        path.mkdir(mode=0o700, parents=True)
        self.run = RunDir(path)
        config = RunConfig(platform="cpu", devices=RANKS, learning_rate=10 ** -(1 + number / 10), seed=number)
        self.run.config.write_text(to_toml(config))
        assert self.run.take_lock()
        self._dice = random.Random(number)
        self._rate = 2000 * (1 + number % 7)
        self._start = time.time() - past_steps / STEPS_PER_SECOND
        self._writer = JournalWriter(self.run.journal)
        self._digest = DigestWriter(self.run, self._writer)
        self._status = StatusWriter(self.run, self._writer, self._digest.state)
        self.step = 0
        self._writer.append(self._beginning(config))
        while self.step < past_steps:
            self.go_on()

    def go_on(self) -> None:
        """Writes what its ranks send of a fifth of a second."""
        self._writer.append(list(self._events()))
        self.step += STEPS
        self._digest.write_due()
        self._status.write_due(self.step / STEPS_PER_SECOND)

    def _beginning(self, config: RunConfig) -> list[Event]:
        at: dict[str, Any] = {"time": self._start, "mono": 100.0}
        begun = RunStarted(
            run_id=self.run.run_id, host="box", pid=1, config=to_toml_values(config), world_size=RANKS,
            steps_per_epoch=EPOCH, total_steps=1_000_000, **at,
        )  # fmt: skip
        ranks = [RankStarted(rank=rank, pid=100 + rank, device="cpu", **at) for rank in range(RANKS)]
        return [begun, *ranks, *(Phase(rank=rank, phase="training", **at) for rank in range(RANKS))]

    def _events(self) -> Iterator[Event]:
        second = (self.step + STEPS) / STEPS_PER_SECOND
        at: dict[str, Any] = {"time": self._start + second, "mono": 100.0 + second}
        level = math.exp(-self.step / self._rate)
        for rank in range(RANKS):
            losses = [0.1 + 2 * level + self._dice.gauss(0, 0.05) for _ in range(STEPS)]
            yield step_event(rank, self.step + 1, losses, seconds=[1 / STEPS_PER_SECOND] * STEPS, examples=32, **at)
        if (self.step + STEPS) % EPOCH == 0:
            yield evaluation_event(self.step + STEPS, 0.1 + level, 1 - level, examples=1000, seconds=0.3, **at)


def main(arguments: Sequence[str] = sys.argv[1:]) -> None:
    """`python -m tests.bench.live_runs DIRECTORY RUNS PAST_STEPS SECONDS`: runs that go on for so long."""
    directory, count, past_steps, seconds = arguments
    runs = [
        LiveRun(Path(directory) / f"20261120T1015{number:02}-torch-ddp-net-{number:04x}", number, int(past_steps))
        for number in range(int(count))
    ]
    print("ready", flush=True)
    began = time.monotonic()
    for beat in range(round(float(seconds) / FLUSH_S)):
        # The runs' batches come apart.
        for number, run in enumerate(runs):
            due = began + FLUSH_S * (beat + number / len(runs))
            time.sleep(max(0.0, due - time.monotonic()))
            run.go_on()


if __name__ == "__main__":
    main()
