"""What other programs get of a run, as JSON: from the commands, and at its end."""

from __future__ import annotations

from trainers.config.run_config import RunConfig
from trainers.contract.events import Summary
from trainers.contract.rundir import RunDir


def run_facts(run: RunDir, status: str, summary: Summary) -> dict[str, object]:
    """A run and its results; null for what it did not reach."""
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


def config_facts(config: RunConfig | None) -> dict[str, object]:
    """What identifies a run in its configuration; nulls if that cannot be read."""
    names = ("backend", "model", "dataset", "devices")
    return {name: getattr(config, name) if config else None for name in names}
