"""Real ranks whose evaluations are no better any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import MLP, launched, resumed
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert
from tuiapp.trainers.contract.manifest import MODEL_FILE

pytestmark = pytest.mark.nightly


def test_real_ranks_come_to_the_same_end_and_a_resumed_run_to_that_of_one_that_was_not_stopped(runs_dir: Path) -> None:
    config = msgspec.structs.replace(MLP, epochs=9, early_stop=4, learning_rate=1e-30, checkpoint_every=1)
    # At such a rate no step changes a weight.
    with launched(config, runs_dir) as run:
        run.at_step(make_plan(config).steps_per_epoch * 2)
        sidecars.send_command(run.run.commands, "stop")
        assert run.end().status == "stopped"
        run.wait_gone()
    with resumed(run.run) as again:
        end = again.end()
        total = make_plan(config).steps_per_epoch
        assert (end.status, end.summary.steps) == ("completed", 5 * total)
        assert end.reason == f"early stop: {5 * total:,} of {9 * total:,} steps"
        (alert,) = [alert for alert in again.of(Alert) if alert.kind == "early-stop"]
        assert alert.text.startswith("early stop: test accuracy was not the best in 4 evaluations in a row")
        assert again.steps_of(1)[-1] == 5 * total
        assert (run.run.export / MODEL_FILE).exists()
