"""What is told of a run to other programs, as JSON holds it: by the verbs, and at its end."""

from __future__ import annotations

from trainers.config.run_config import RunConfig
from trainers.contract.events import Summary
from trainers.contract.rundir import RunDir


def run_facts(run: RunDir, status: str, summary: Summary) -> dict[str, object]:
    """A run and what it came to; null where it did not get that far."""
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
    """What of a configuration says which run it is; nulls for one that cannot be read."""
    names = ("backend", "model", "dataset", "devices")
    return {name: getattr(config, name) if config else None for name in names}
