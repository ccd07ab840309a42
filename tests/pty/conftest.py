"""What the stories begin with: presets of small runs, and a place for runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.leftovers import mark as mark
from tests.processes.conftest import _leaves_no_process as _leaves_no_process
from tests.processes.conftest import fake as fake
from tests.processes.conftest import no_framework as no_framework
from tuiapp.library.presets import save_preset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import default_runs_dir


@pytest.fixture(autouse=True)
def presets() -> None:
    """Two presets of the user's: one whose runs go on until they are stopped, one whose runs end by themselves."""
    # It neither evaluates nor saves: a fast machine would fill the log with that, and push out what is looked for.
    endless = RunConfig(model="mlp", platform="cpu", devices=2, epochs=100_000, eval_every=0, checkpoint_every=0)
    save_preset("endless", endless)
    save_preset("brief", RunConfig(model="mlp", platform="cpu", devices=2, max_steps=40))


@pytest.fixture
def runs_dir() -> Path:
    """Where the runs of a story are."""
    return default_runs_dir()
