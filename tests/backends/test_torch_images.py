"""Batches taken of images that lie on the device as in their file: as if all had been made float32 before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainers.frameworks.torch.ranks import to_device
from trainers.sources import datasets


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
