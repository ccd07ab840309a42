"""PyTorch's sums over a test set: exact, whatever the number of batches and parts."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.kit.close import assert_close, rounding
from tuiapp.trainers.frameworks.torch.losses import Losses
from tuiapp.trainers.frameworks.torch.ranks import Images, sum_up
from tuiapp.trainers.rank.evaluation import EVAL_BATCH, WORST, evaluation_of

pytestmark = pytest.mark.nightly

CPU = torch.device("cpu")


@pytest.mark.parametrize("classes", [10, 200])
@pytest.mark.parametrize("parts", [1, 3])
def test_sums_over_batches_and_parts_are_those_of_the_whole(classes: int, parts: int) -> None:
    generator = np.random.default_rng(0)
    images = generator.random((3 * EVAL_BATCH + 17, 1, classes, 1), dtype=np.float32)
    labels = torch.from_numpy(generator.integers(0, classes, len(images)))

    def logits(x: torch.Tensor) -> torch.Tensor:
        return 5 * x.flatten(1)

    sums = sum(
        sum_up(
            logits,
            Images(images[part::parts], CPU, None),
            labels[part::parts],
            classes,
            nullcontext(),
            Losses(),
            (part, parts),
            at_once=EVAL_BATCH,
        )
        for part in range(parts)
    )
    assert isinstance(sums, torch.Tensor)
    found = evaluation_of(sums.numpy(), classes)
    whole = logits(torch.from_numpy(images))
    losses, predicted = F.cross_entropy(whole, labels, reduction="none"), whole.argmax(1)
    assert found.examples == len(images)
    wanted = float(losses.double().mean())
    assert_close(found.loss, wanted, rounding(len(images), wanted, "float64"))
    assert found.accuracy == float((predicted == labels).double().mean())
    worst = losses.argsort(descending=True)[:WORST].tolist()
    assert [one.number for one in found.worst] == worst
    assert [(one.label, one.predicted) for one in found.worst] == [(int(labels[n]), int(predicted[n])) for n in worst]


def test_a_part_without_examples_adds_nothing() -> None:
    images = Images(np.zeros((0, 1, 10, 1), np.float32), CPU, None)
    labels, how = torch.zeros(0, dtype=torch.int64), (10, nullcontext(), Losses(), (2, 3))
    assert not sum_up(lambda x: x, images, labels, *how, at_once=EVAL_BATCH).any()
