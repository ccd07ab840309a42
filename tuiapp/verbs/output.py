"""What verbs print: data on stdout, narration on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

from tuiapp.trainers.contract.manifest import CheckpointDir
from tuiapp.trainers.state.media import Kept
from tuiapp.trainers.state.objective import Objective, Spread, objective_names, result_value
from tuiapp.trainers.state.summary import RunInfo, config_facts, run_facts
from tuiapp.trainers.state.text import plural, sanitize
from tuiapp.view.groups import RunGroup, best_row, runs_of
from tuiapp.view.run_list import started_at
from tuiapp.view.run_values import METRIC

if TYPE_CHECKING:
    from tuiapp.actions.action import Outcome
    from tuiapp.trainers.state.run_state import RunState


collected: ContextVar[tuple[list[object], list[str]] | None] = ContextVar("collected", default=None)
"""Where a verb that is called in this thread puts data and narration; None: it prints them."""


def tell(text: str) -> None:
    """Prints a line of narration."""
    if (into := collected.get()) is not None:
        into[1].append(sanitize(text))
    else:
        print(f"tuiapp: {sanitize(text)}", file=sys.stderr)


def print_json(facts: object, *, indent: int | None = 2) -> None:
    """Prints data as JSON."""
    if (into := collected.get()) is not None:
        into[0].append(facts)
    else:
        print(json.dumps(facts, indent=indent), flush=True)


def print_outcome(outcome: Outcome) -> int:
    """Prints what came of an action; returns 1 if something of it was not done, and else 0."""
    for severity, text in outcome.notes:
        if severity == "information":
            print(sanitize(text), file=sys.stderr)
        else:
            tell(text)
    return 1 if outcome.of("error") else 0


def width_of_stdout() -> int:
    """Returns the terminal's width; where stdout is none, lines are as long as they are."""
    return get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields each row as a line, its cells in columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def redirect_to_devnull(stream: TextIO) -> None:
    """Redirects a stream to devnull, so that the write at exit does not fail and replace the exit code with 120."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class UsageError(Exception):
    """Arguments that do not go together; the message names them."""


def list_facts(info: RunInfo) -> dict[str, object]:
    """Returns a run's entry in a list of runs, ready for JSON."""
    config, nodes = info.config, (info.begun.part[1] if info.begun.part else info.begun.nodes) if info.begun else 1
    return {
        **run_facts(info.directory, info.status, info.summary),
        "name": info.name or None,
        "tags": list(info.about.tags),
        "group": info.about.group,
        "note": info.about.note or None,
        "epoch_seconds": info.epoch_seconds,
        "journal_bytes": info.journal_bytes,
        "best_loss": info.summary.best_loss,
        "best_accuracy": info.best_accuracy,
        **config_facts(config),
        "platform": config.platform if config else None,
        "started": started_at(info),
        "host": info.host or None,
        "slurm_job": info.begun.job or None if info.begun else None,
        "node": info.begun.part[0] if info.begun and info.begun.part else None,
        "nodes": nodes if nodes > 1 else None,
        "reason": info.reason,
        "problem": info.problem,
    }


def group_facts(group: RunGroup, objective: Objective | None) -> dict[str, object]:
    """Returns a group's entry in a list, ready for JSON: its runs, their states, and what they came to.

    Runs that differ in seed alone have means, others their extremes and those that are best by the objective.
    """
    figures = ("loss", "test_loss", "best_loss", "test_accuracy", "examples_per_second", "steps", "seconds")
    values: dict[str, Callable[[RunInfo], float | None]] = {
        "best_accuracy": lambda info: info.best_accuracy,
        **{name: attrgetter(f"summary.{name}") for name in figures},
        **{
            f"{METRIC * (name in figures)}{name}": partial(_number, name)
            for name in objective_names(group.counted)
            if name != "loss"
        },
    }
    best = best_row(group.rows, objective) if objective and not group.is_alike else None
    return {
        "group": group.name,
        "runs": [info.directory.run_id for info in group.infos],
        "states": dict(Counter(info.status for info in group.infos)),
        "differ_in_seed_alone": group.is_alike,
        "best_by": str(objective) if best else None,
        "best": [info.directory.run_id for info in runs_of(best)] if best else None,
        "results": {name: _came_to(group, value) for name, value in values.items()},
    }


def _came_to(group: RunGroup, value: Callable[[RunInfo], float | None]) -> dict[str, object] | None:
    if (spread := Spread.of(map(value, group.counted))) is None:
        return None
    if group.is_alike:
        return {"mean": spread.mean, "deviation": spread.deviation, "n": spread.size}
    return {"least": spread.least, "greatest": spread.most, "n": spread.size}


def _number(name: str, info: RunInfo) -> float | None:
    value = result_value(info, name)
    return value if isinstance(value, int | float) else None


def read_through(info: RunInfo) -> RunState:
    """Returns the state of a run whose journal can be read, else an empty one."""
    # They need numpy, which takes longer to import than a list of runs to read.
    from tuiapp.trainers.state.run_state import RunState
    from tuiapp.trainers.state.snapshot import read_run

    state = read_run(info.directory) if info.is_readable else RunState()
    state.about = info.about
    return state


def checkpoint_facts(checkpoints: list[CheckpointDir], best: CheckpointDir | None) -> list[dict[str, object]]:
    """Returns a run's checkpoints, ready for JSON."""
    return [
        {
            "name": checkpoint.path.name,
            "directory": str(checkpoint.path),
            "step": checkpoint.manifest.step,
            "epoch": checkpoint.manifest.epoch,
            "loss": checkpoint.manifest.loss,
            "accuracy": checkpoint.manifest.accuracy,
            "bytes": checkpoint.bytes,
            "finite": checkpoint.manifest.finite,
            "best": checkpoint is best,
        }
        for checkpoint in checkpoints
    ]


def reported_facts(state: RunState) -> list[dict[str, object]]:
    """Returns the checkpoints that a script says it has saved, ready for JSON; none of a built-in trainer."""
    reported = state.checkpoints if state.is_script else []
    return [{"name": saved.name, "step": saved.step, "bytes": saved.bytes} for saved in reported]


def media_words(kept: Kept) -> str:
    """Says how many files of a name are kept, and which is the last."""
    last = kept.files[-1]
    left_out = f", {kept.left_out:,} more are not kept" if kept.left_out else ""
    return f"{plural(len(kept.files), last.kind)}{left_out}; of step {last.step:,}: media/{last.file}"


def media_facts(named: Mapping[str, Kept]) -> dict[str, object]:
    """Returns the files that a run has logged by their names, ready for JSON."""
    return {
        name: {
            "left_out": kept.left_out,
            "files": [
                {"step": file.step, "rank": file.rank, "kind": file.kind, "file": file.file, "caption": file.caption}
                for file in kept.files
            ],
        }
        for name, kept in named.items()
    }
