"""PyTorch's sums over a test set, and batches of images that lie on the device as in their file."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from tests.kit.close import assert_close, rounding
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch.losses import Losses
from tuiapp.trainers.frameworks.torch.ranks import Images, TrainingSet, sum_up, to_device
from tuiapp.trainers.rank.evaluation import EVAL_BATCH, WORST, evaluation_of
from tuiapp.trainers.sources import datasets
from tuiapp.trainers.sources.augmentation import with_draws

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


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("part", [slice(50), slice(1, None, 2)])
@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last, None])
def test_a_batch_is_the_same_to_the_last_bit_and_lies_the_same(
    layout: torch.memory_format | None, channels: int, part: slice, dtype: type
) -> None:
    images: datasets.Images = (np.random.default_rng(0).random((100, 28, 26, channels or 1)) * 255).astype(dtype)
    # As of images without channels, whose axis is made: of another stride.
    images = images[part] if channels else images[..., 0].copy()[part, ..., np.newaxis]
    whole = torch.from_numpy(images).permute(0, 3, 1, 2)
    whole = whole.float().div_(255) if whole.dtype == torch.uint8 else whole
    whole = whole.contiguous(memory_format=layout or torch.channels_last)
    if layout is None:
        whole = whole.permute(0, 2, 3, 1).contiguous()
    x, y = to_device(images, np.arange(50), torch.device("cpu"), layout)
    assert (len(x), y.tolist()) == (50, list(range(50)))
    for rows in (torch.tensor([3, 1, 4, 1, 5]), slice(40, 60)):
        assert torch.equal(x[rows], whole[rows])
        # Which decides the kernels of convolutions, and with these the last bits of what is computed.
        assert layout is None or x[rows].stride() == whole[rows].stride()
    numbers = np.arange(50).reshape(5, 10)
    plan = make_plan(RunConfig(devices=1, global_batch_size=10, dataset="digits"))
    for augment in ("off", "flip", "crop-flip", "mixup"):
        config = replace(plan.config, augment=augment)
        training_set = TrainingSet(images, np.arange(50), torch.device("cpu"), layout, classes=50)
        placed = training_set.place(with_draws(replace(plan, config=config), 1, 1, numbers))
        batch = training_set.batch(next(iter(placed)))[0]
        assert layout is None or batch.stride() == whole[numbers[0]].stride()
