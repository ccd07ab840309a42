"""Where nobody has said after how many epochs, checkpoints are half a minute apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import MLP, launched
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint
from tuiapp.trainers.run.supervisor import BETWEEN_SAVES_S


@pytest.mark.nightly
def test_of_short_epochs_one_in_half_a_minute_is_saved(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.01)
    config = msgspec.structs.replace(MLP, checkpoint_every=-1)
    with launched(config, runs_dir) as run:
        first = run.wait(Checkpoint, seconds=3 * BETWEEN_SAVES_S)
        assert first.mono - run.started.mono > BETWEEN_SAVES_S
        assert first.step % make_plan(config).steps_per_epoch == 0
        sidecars.send_command(run.run.commands, "checkpoint")
        asked = run.wait(Checkpoint, lambda event: event.step > first.step)
        assert asked.mono - first.mono < BETWEEN_SAVES_S
