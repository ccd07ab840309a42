"""Saves small checkpoints without a run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np

from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.events import Alert, Checkpoint
from tuiapp.trainers.contract.manifest import CheckpointDir, list_checkpoints
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.state.resume_point import ResumePoint, first_usable

CONFIG = RunConfig(platform="cpu", devices=2)


CLASSES = 10


class Told:
    """Stands in for a reporter."""

    def __init__(self) -> None:
        self.evaluated: tuple[int, Evaluated] | None = None
        self.checkpoints: list[Checkpoint] = []
        self.alerts: list[str] = []

    def send(self, event: Checkpoint | Alert) -> None:
        if isinstance(event, Checkpoint):
            self.checkpoints.append(event)
        else:
            self.alerts.append(event.text)


def save(
    run: RunDir,
    *steps: int,
    loss: dict[int, float] | None = None,
    accuracy: dict[int, float] | None = None,
    config: RunConfig = CONFIG,
) -> Told:
    """Save small checkpoints after the given steps, one after the other."""
    told, recorded = Told(), set[int]()
    with Checkpoints(run, make_plan(config), 0, cast(Reporter, told), recorded) as checkpoints:
        for step in steps:
            result = Evaluated((loss or {}).get(step), (accuracy or {}).get(step))
            told.evaluated = (step, result)
            weights = np.full((50, 40), step, np.float32)
            recorded.add(step)
            checkpoints.save(step, {"fc.weight": weights, "count": np.array(step)}, {"ranks.random": np.arange(8)})
    return told


def newest_usable(directory: Path, config: RunConfig, classes: int) -> tuple[CheckpointDir, list[str]]:
    """The newest that is whole and finite, whatever a journal covers."""
    found, problems = list_checkpoints(directory)
    point, notes = first_usable((ResumePoint(one, covered=True) for one in found), problems, config, classes)
    return point.checkpoint, notes


def steps_in(run: RunDir) -> list[int]:
    found, problems = list_checkpoints(run.checkpoints)
    assert problems == []
    return [checkpoint.manifest.step for checkpoint in found]
