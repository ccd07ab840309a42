"""What follows from an evaluation's sums."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import WorstExample
from tuiapp.trainers.rank.evaluation import EVAL_BATCH, MOST_COLUMNS, batch_size, columns, evaluation_of, sum_up


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
