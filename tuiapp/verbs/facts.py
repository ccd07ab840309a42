"""Facts about runs as JSON has them: the same in every verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from tuiapp.trainers.contract.manifest import CheckpointDir
from tuiapp.trainers.state.media import Kept
from tuiapp.trainers.state.objective import Objective, Spread, objective_names, result_value
from tuiapp.trainers.state.summary import RunInfo, config_facts, run_facts
from tuiapp.trainers.state.text import plural
from tuiapp.view.groups import RunGroup, best_row, runs_of
from tuiapp.view.run_list import started_at
from tuiapp.view.run_values import METRIC

if TYPE_CHECKING:
    from tuiapp.trainers.state.run_state import RunState


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
