"""How fast and how small a long finished run is read and folded: `python -m tests.bench.fold`.

100,000 steps of 8 ranks, as the supervisor keeps them: at 100 steps a second in windows, or every step by itself.
Prints the seconds, as seen from a feed with its thread, and the most memory that this took.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kit import histories as h
from tests.kit.reported import step_event
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract.events import Metrics, RunEnded, Summary
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState

STEPS, RANKS = 100_000, 8
RUN_ID = "20261120T101500-torch-ddp-net-3fa1"


def write_long_run(path: Path, per_event: int = 50, window: int = 1) -> RunDir:
    """A finished run.

    Args:
        path: Its directory.
        per_event: Entries in an event.
        window: Steps that an entry stands for.
    """
    run = RunDir(path)
    path.mkdir(parents=True, exist_ok=True)
    run.config.write_text(to_toml(RunConfig(platform="cpu", devices=RANKS)))
    writer = JournalWriter(run.journal)
    writer.append([h.started(RANKS)])
    for first in range(1, STEPS + 1, per_event * window):
        writer.append([_steps(rank, first, per_event, window) for rank in range(RANKS)])
    summary = Summary(steps=STEPS, epochs=10, loss=0.1, seconds=1000)
    writer.append([RunEnded(status="completed", reason="all", summary=summary)])
    writer.close()
    return run


def _steps(rank: int, first: int, per_event: int, window: int) -> Metrics:
    losses = [h.loss_at(first + i * window, rank) for i in range(per_event)]
    joined = window > 1
    return step_event(
        rank,
        first,
        losses,
        seconds=[0.010123 + 0.001 * (i % 7) for i in range(per_event)],
        examples=64 * window,
        counts=[window] * per_event if joined else None,
        lows={LOSS: [loss - 0.1 for loss in losses]} if joined else None,
        highs={LOSS: [loss + 0.1 for loss in losses]} if joined else None,
        **h.at(first * 0.01),
    )


def read_and_fold(run: RunDir) -> tuple[float, RunState]:
    """Seconds until all of it is in the state, with the feed's thread reading."""
    state, feed = RunState(run.run_id), JournalFeed(run)
    began = time.perf_counter()
    feed.start()
    while state.ended is None:
        events = feed.take(64)
        for event in events:
            apply(state, event)
        if not events:
            time.sleep(0.001)
    feed.close()
    return time.perf_counter() - began, state


def main() -> None:
    """Measure in processes of their own, so that the memory is that of reading alone."""
    if len(sys.argv) > 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, state = read_and_fold(RunDir(Path(sys.argv[1])))
        assert state.step == STEPS
        used = time.process_time()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        own = (most - before) / 1024
        print(
            f"{seconds:.2f} s, {used:.2f} s of processor time with imports, {most / 1024:.0f} MiB, {own:.0f} of it new"
        )
        return
    with tempfile.TemporaryDirectory() as directory:
        for name, per_event, window in (("windows of 2 steps", 50, 2), ("every step", 50, 1)):
            run = write_long_run(Path(directory) / name / RUN_ID, per_event, window)
            size = run.journal.stat().st_size / 1e6
            for _ in range(3):
                command = [sys.executable, "-m", "tests.bench.fold", str(run.path)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"{STEPS:,} steps × {RANKS} ranks, {name}, {size:.0f} MB: {done.stdout.strip()}")


if __name__ == "__main__":
    main()
