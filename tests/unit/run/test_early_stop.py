"""Training that ends when evaluations are no better any more."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest

from tests.kit.small_checkpoints import CONFIG, Told
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.manifest import MODEL_FILE, list_checkpoints, read_checkpoint
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank import tensor_files
from tuiapp.trainers.rank.checkpoints import Checkpoints, Patience
from tuiapp.trainers.rank.reporter import Reporter


@pytest.mark.parametrize(
    ("by", "figures", "ends"),
    [
        ("accuracy", [0.5, 0.6, 0.6, 0.4], [False, False, False, True]),
        ("accuracy", [0.5, math.nan, 0.6, 0.4], [False] * 4),
        ("loss", [2.0, 1.0, 1.0, math.inf], [False, False, False, True]),
    ],
)
def test_so_many_in_a_row_that_are_no_better(by: str, figures: list[float], ends: list[bool]) -> None:
    patience, never, found = Patience(by, 2), Patience(by, 0), []
    for figure in figures:
        finite = figure if math.isfinite(figure) else None
        evaluated = Evaluated(accuracy=finite) if by == "accuracy" else Evaluated(loss=finite)
        patience.add(evaluated)
        never.add(evaluated)
        found.append(patience.is_over)
    assert found == ends
    assert not never.is_over


def test_a_metric_of_ones_own_is_compared_with_itself_alone() -> None:
    """A run may be resumed with another metric in the key `best`."""
    earlier = Evaluated(0.5, 0.9, 0.8, "highest:f1")
    assert earlier.figure("highest:f1") == 0.8
    assert earlier.figure("highest:margin") is Evaluated(0.5, 0.9).figure("highest:f1") is None
    patience = Patience("highest:margin", 2, best=earlier, spent=1)
    patience.add(Evaluated(0.5, 0.9, 0.1, "highest:margin"))
    assert patience.spent == 0


def test_the_best_is_exported_and_a_resumed_run_goes_on_counting(tmp_path: Path) -> None:
    run, told = RunDir(tmp_path), Told()
    plan = make_plan(msgspec.structs.replace(CONFIG, early_stop=3))
    accuracies = {29: 0.5, 58: 0.9, 87: 0.8, 116: 0.7}

    def saved(step: int, checkpoints: Checkpoints) -> tensor_files.Tensors:
        told.evaluated = step, Evaluated(1.0, accuracies.get(step, 0.6))
        checkpoints.patience.add(told.evaluated[1])
        model: tensor_files.Tensors = {"a": np.full(3, step, np.float32)}
        checkpoints.save(step, model, {"b": np.zeros(1, np.float32)})
        return model

    with Checkpoints(run, plan, 0, cast(Reporter, told), set()) as checkpoints:
        for step in accuracies:
            saved(step, checkpoints)
        assert not checkpoints.patience.is_over
        assert checkpoints.best_model() is None
    newest = list_checkpoints(run.checkpoints)[0][0]
    manifest = read_checkpoint(newest.path).manifest
    assert (manifest.best, manifest.since_best) == (Evaluated(1.0, 0.9), 2)
    with Checkpoints(run, plan, 0, cast(Reporter, told), set(), newest.path) as checkpoints:
        model = saved(145, checkpoints)
        assert checkpoints.patience.is_over
        checkpoints.export(model)
    assert tensor_files.load(run.export / MODEL_FILE)["a"].tolist() == [58.0] * 3
