"""What `--json` prints of a run: the same keys wherever a run is printed."""

from __future__ import annotations

from trainers.contract.events import Summary
from trainers.contract.rundir import RunDir


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
