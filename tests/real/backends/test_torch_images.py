"""Batches taken of images that lie on the device as in their file: as if all had been made float32 before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch.ranks import TrainingSet, to_device
from tuiapp.trainers.sources import datasets
from tuiapp.trainers.sources.augmentation import with_draws

pytestmark = pytest.mark.nightly


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
