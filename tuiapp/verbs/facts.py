"""What the verbs say of a run: the same wherever it is said."""

from __future__ import annotations

import shlex

from trainers.contract.config import RunConfig
from trainers.contract.events import Summary
from trainers.contract.manifest import CheckpointDir, best_checkpoint, list_checkpoints
from trainers.contract.options import ConfigError
from trainers.contract.rundir import RunDir
from trainers.contract.runs import default_runs_dir, read_config


class UsageError(Exception):
    """Arguments that do not go together; the message says which."""


def run_facts(run: RunDir, status: str, summary: Summary) -> dict[str, object]:
    """A run and what it came to, as JSON holds it."""
    return {
        "run": run.run_id,
        "directory": str(run.path),
        "status": status,
        "steps": summary.steps,
        "epochs": summary.epochs,
        "examples_per_second": summary.examples_per_second,
        "loss": summary.loss,
        "test_loss": summary.test_loss,
        "test_accuracy": summary.test_accuracy,
        "seconds": summary.seconds,
    }


def checkpoint_facts(checkpoints: list[CheckpointDir]) -> list[dict[str, object]]:
    """A run's checkpoints as JSON holds them."""
    best = best_checkpoint(checkpoints)
    return [
        {
            "name": one.path.name,
            "directory": str(one.path),
            "step": one.manifest.step,
            "epoch": one.manifest.epoch,
            "accuracy": one.manifest.accuracy,
            "bytes": one.bytes,
            "finite": one.manifest.finite,
            "best": one is best,
        }
        for one in checkpoints
    ]


def resume_command(run: RunDir) -> str:
    """What goes on with a run; "" when it goes on, has made all its steps, or has nothing to go on from."""
    try:
        config = read_config(run)
    except (ConfigError, OSError):
        return ""
    if run.is_live() or not _has_more(run, config):
        return ""
    name = run.run_id if run.path.parent == default_runs_dir() else shlex.quote(str(run.path))
    return f"tuiapp run --resume {name}"


def resume_hint(run: RunDir) -> str:
    """The same as a line that says what it is for; "" for none."""
    command = resume_command(run)
    return f"to go on: {command}" if command else ""


def _has_more(run: RunDir, config: RunConfig) -> bool:
    finite = [one.manifest.step for one in list_checkpoints(run.checkpoints)[0] if one.manifest.finite]
    return bool(finite) and finite[0] < config.total_steps
