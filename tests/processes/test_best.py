"""Runs whose lowest test loss and highest test accuracy are of different epochs: `best` says which counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.harness import launched
from tests.kit.variants import mostly_nightly
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Checkpoint
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.state.summary import summarise


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.by_hand)])
@pytest.mark.parametrize("by", mostly_nightly(["accuracy", "loss"], "accuracy"))
def test_what_is_kept_marked_and_listed_as_best(
    by: str, real: bool, runs_dir: Path, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not real:
        fake(step=0.001)
        monkeypatch.setenv("TUIAPP_TEST_EVALUATIONS", "0.9:0.5 0.4:0.7 0.6:0.8 0.5:0.6")
    config = RunConfig(
        model="mlp", platform="cpu", devices=1, learning_rate=0.01, epochs=4, checkpoint_every=1, keep_checkpoints=1,
        best=by,
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        found = run.evaluations()
        marked = [event.step for event in run.of(Checkpoint) if event.best]
    figures = [(one.accuracy, -(one.loss or 0.0)) for one in found]
    merits = figures if by == "accuracy" else [one[::-1] for one in figures]
    improved = [place for place, merit in enumerate(merits) if merit > max(merits[:place], default=(-math.inf, 0.0))]
    assert marked == [found[place].step for place in improved]
    best = found[improved[-1]]
    kept = {one.manifest.step: one.manifest for one in list_checkpoints(run.run.checkpoints)[0]}
    assert (kept[best.step].loss, kept[best.step].accuracy) == (best.loss, best.accuracy)
    info = summarise(run.run)
    least, greatest = min(one.loss or math.inf for one in found), max(one.accuracy for one in found)
    assert (info.summary.best_loss, info.best_accuracy) == (least, greatest)
