"""What adding up the epochs' figures costs a reader of a whole journal: `python -m tests.bench.epochs`.

Folds the same journal, as a reader does that finds no digest, in turns without epochs (the run does not say how
long one is), with epochs that begin where an event does, and with epochs of 29 steps, which begin within every event.
Prints the seconds of processor time, which other programs change least: median, least and most.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec

from tests.kit import histories as h
from tests.kit.reported import step_event
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.journal import JournalReader, JournalWriter
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState

PER_EVENT = 50
EPOCHS = {"without epochs": 0, "epochs of 10,000 steps": 10_000, "epochs of 29 steps": 29}


def write_steps(journal: Path, steps: int, ranks: int) -> None:
    writer = JournalWriter(journal)
    examples = RunConfig().global_batch_size / ranks
    seconds = [0.010123 + 0.001 * (i % 7) for i in range(PER_EVENT)]
    for first in range(1, steps + 1, PER_EVENT):
        losses = [[h.loss_at(first + i, rank) for i in range(PER_EVENT)] for rank in range(ranks)]
        writer.append(
            [
                step_event(rank, first, losses[rank], seconds=seconds, examples=examples, **h.at(first * 0.01))
                for rank in range(ranks)
            ]
        )
    writer.close()


def fold(journal: Path, steps: int, ranks: int, steps_per_epoch: int) -> float:
    """Returns seconds of processor time."""
    began, state, reader = time.process_time(), RunState(h.RUN_ID), JournalReader(journal)
    apply(state, msgspec.structs.replace(h.started(ranks), steps_per_epoch=steps_per_epoch))
    while events := reader.read():
        for event in events:
            apply(state, event)
    assert state.step == steps
    assert bool(state.curves.last_epochs()) == bool(steps_per_epoch)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="a multiple of 50 (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--times", type=int, default=5, help="of each (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        journal = Path(directory) / "events.jsonl"
        write_steps(journal, options.steps, options.ranks)
        size = journal.stat().st_size / 1e6
        print(f"{options.steps:,} steps × {options.ranks} ranks, {size:,.0f} MB, {options.times} times in turns")
        found: dict[str, list[float]] = {name: [] for name in EPOCHS}
        for _ in range(options.times):
            for name, steps_per_epoch in EPOCHS.items():
                found[name].append(fold(journal, options.steps, options.ranks, steps_per_epoch))
        base = median(found["without epochs"])
        for name, each in found.items():
            more = f", {median(each) / base - 1:+.1%}" if each is not found["without epochs"] else ""
            print(f"{name:24} {median(each):6.2f} s ({min(each):.2f} to {max(each):.2f}){more}")


if __name__ == "__main__":
    main()
