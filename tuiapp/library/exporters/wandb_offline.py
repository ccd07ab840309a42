"""A run's metrics as an offline run of Weights & Biases, by the `wandb` package; `wandb sync` uploads it later.

    python -m tuiapp.library.exporters.wandb_offline DIRECTORY RUN_DIR WHAT

wandb runs in a process of its own, in offline mode, in which it contacts no server; of the user's settings for it none
applies. One wandb run has all ranks: a row per step, with `loss/rank1` and so on for those after the first. What rank 0
reports has plain names if there is no other rank, or it is an evaluation's. Every chart is drawn over `step`, and
wandb's own `_step` counts the rows; `_timestamp` is the journal's. wandb sets a run's start and duration itself, and
overwrites its setting `x_start_time` (0.31): they are those of the export. Where a run was resumed,
the steps that are repeated are left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from math import nan
from pathlib import Path
from typing import Any

from tuiapp.library.export import with_facts
from tuiapp.library.exporters import What
from tuiapp.library.exporters.tables import in_table
from tuiapp.trainers.config.secrets import mask_values
from tuiapp.trainers.contract.events import Metrics, RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.metrics import HELD_OUT, group_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.history import counted_steps
from tuiapp.trainers.state.summary import summarise
from tuiapp.view.run_values import known_values

STEPS_AT_ONCE = 4096  # rows that wait for what other ranks report of their steps

OWN = ("step", "_step", "_timestamp", "_runtime")


def write(path: Path, run: RunDir, what: What) -> int:
    """Writes `offline-run-…` into a directory; returns the number of entries. Raises OSError."""
    with tempfile.TemporaryDirectory(dir=path) as temporary:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("WANDB_")}
        places = {f"WANDB_{name}_DIR": temporary for name in ("CONFIG", "CACHE", "DATA")}
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, temporary, str(run.path), what],
            capture_output=True,
            text=True,
            check=False,
            env={**kept, **places, "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"},
        )
        written = list(Path(temporary, "wandb").glob("offline-run-*"))
        if done.returncode or len(written) != 1:
            stderr = done.stderr.strip().splitlines() or ["it wrote nothing"]
            raise OSError(f"wandb failed: {stderr[-1]}")
        shutil.rmtree(written[0] / "tmp", ignore_errors=True)
        written[0].rename(path / written[0].name)
        return int(done.stdout.split()[-1])


def rows_of(run: RunDir, wants: Callable[[str], bool]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields rows and how many entries of ranks are in each, mostly in the order of their steps."""
    counted = counted_steps(JournalReader(run.journal).rest())
    several = _has_several_ranks(run)
    waiting: dict[int, dict[str, Any]] = {}
    counts: dict[int, int] = {}
    attempt = 1
    for event in JournalReader(run.journal).rest():
        if isinstance(event, RunStarted):
            attempt = event.attempt
        if not isinstance(event, Metrics):
            continue
        columns = [(_key(name, event.rank, several), column) for name, column in event.values.items() if wants(name)]
        for entry, (step, moment) in enumerate(event.places() if columns else ()):
            if step > counted.get(attempt, step):
                continue
            row = waiting.setdefault(step, {"step": step, "_timestamp": moment})
            row |= {key: nan if column[entry] is None else column[entry] for key, column in columns}
            counts[step] = counts.get(step, 0) + 1
        if len(waiting) > 2 * STEPS_AT_ONCE:
            for step in sorted(waiting)[:STEPS_AT_ONCE]:
                yield counts.pop(step), waiting.pop(step)
    for step in sorted(waiting):
        yield counts[step], waiting[step]


def _has_several_ranks(run: RunDir) -> bool:
    events = JournalReader(run.journal).rest()
    return any(
        event.world_size > 1 if isinstance(event, RunStarted) else isinstance(event, Metrics) and event.rank > 0
        for event in events
    )


def _key(name: str, rank: int, several: bool) -> str:
    name = f"metric/{name}" if name in OWN else name
    plain = rank == 0 and (not several or group_of(name) in HELD_OUT)
    return name if plain else f"{name}/rank{rank}"


def main() -> None:
    """Writes the run that the arguments name, and prints the number of entries."""
    import wandb

    directory, run, what = sys.argv[1], RunDir(Path(sys.argv[2])), sys.argv[3]
    info = with_facts(summarise(run))
    settings = wandb.Settings(
        mode="offline",
        root_dir=directory,
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
    target = wandb.init(
        project="tuiapp",
        name=info.name or run.run_id,
        id=run.run_id,
        config=known_values(info),
        settings=settings,
    )
    target.define_metric("*", step_metric="step")
    count = 0
    for entries, row in rows_of(run, lambda name: in_table(name, what)):
        target.log(row)
        count += entries
    target.summary.update(mask_values(info.facts.summary))
    target.finish(int(info.status == "failed"))
    print(count)


if __name__ == "__main__":
    main()
