"""What follows from an evaluation's sums, and training that ends when evaluations are no better any more."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest

from tests.kit.small_checkpoints import CONFIG, Told
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.evaluations import Evaluated
from tuiapp.trainers.contract.events import WorstExample
from tuiapp.trainers.contract.manifest import MODEL_FILE, list_checkpoints, read_checkpoint
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank import tensor_files
from tuiapp.trainers.rank.checkpoints import Checkpoints, Patience
from tuiapp.trainers.rank.evaluation import EVAL_BATCH, MOST_COLUMNS, batch_size, columns, evaluation_of, sum_up
from tuiapp.trainers.rank.reporter import Reporter


def test_a_confusion_matrix_and_the_worst_of_all_parts() -> None:
    counts = [[8, 2, 0], [0, 10, 0], [1, 1, 8]]
    nobody, broken = [0.0] * 4, [np.nan, 5, 1, 1]
    worst = [[0.5, 3, 0, 1], nobody, broken, [2.5, 9, 2, 0], [2.5, 4, 2, 1]]
    found = evaluation_of(np.array([6.0, *np.ravel(counts), *np.ravel(worst)]), 3)
    assert (found.loss, found.accuracy, found.examples) == (6 / 30, 26 / 30, 30)
    # A checkpoint's manifest takes plain numbers only.
    assert msgspec.json.decode(msgspec.json.encode(found))[:3] == [6 / 30, 26 / 30, 30]
    assert found.counts == counts
    assert msgspec.json.decode(msgspec.json.encode((found.loss, found.accuracy))) == [6 / 30, 26 / 30]
    assert found.worst == [WorstExample(4, 2, 1, 2.5), WorstExample(9, 2, 0, 2.5), WorstExample(3, 0, 1, 0.5)]


def test_many_classes_are_counted_right_and_wrong() -> None:
    classes = MOST_COLUMNS + 1
    counts = np.tile([3, 1], (classes, 1))
    assert columns(classes) == 2
    found = evaluation_of(np.array([1.0, *counts.ravel()]), classes)
    assert (found.accuracy, found.examples) == (0.75, 4 * classes)
    assert found.counts == counts.tolist()


@pytest.mark.parametrize("classes", [4, MOST_COLUMNS + 1])
def test_sums_of_logits(classes: int) -> None:
    random = np.random.default_rng(0)
    logits, labels = 50 * random.normal(size=(23, classes)).astype(np.float32), random.integers(0, 4, 23)
    found = evaluation_of(sum_up(logits, labels), classes)
    shares = np.exp(logits - logits.max(1, keepdims=True).astype(np.float64))
    losses = -np.log(shares[np.arange(23), labels] / shares.sum(1))
    assert (found.examples, found.accuracy) == (23, (logits.argmax(1) == labels).mean())
    assert found.loss == pytest.approx(losses.mean())
    assert [one.number for one in found.worst] == np.argsort(-losses)[:10].tolist()
    assert [one.loss for one in found.worst] == pytest.approx(sorted(losses)[:-11:-1])
    assert np.sum(found.counts, 1)[:4].tolist() == np.bincount(labels).tolist()


@pytest.mark.parametrize(
    ("shape", "batch", "devices", "examples"),
    [
        ((28, 28, 1), 48, 2, EVAL_BATCH),
        ((32, 32, 3), 48, 2, EVAL_BATCH),
        # ResNet-18 would take 39.5 GB for 1,024 of these.
        ((224, 224, 3), 256, 2, 128),
        ((224, 224, 3), 8, 2, 20),
        ((4000, 4000, 3), 2, 2, 1),
    ],
)
def test_large_images_are_evaluated_as_many_at_a_time_as_trained_on(
    shape: tuple[int, int, int], batch: int, devices: int, examples: int
) -> None:
    config = RunConfig(platform="cpu", devices=devices, global_batch_size=batch)
    plan = make_plan(config)
    assert plan.data.labels == 1
    data = replace(plan.data, input_shape=shape)
    assert batch_size(msgspec.structs.replace(plan, facts=data)) == examples


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
