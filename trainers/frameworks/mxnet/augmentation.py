"""A batch, augmented on the host, where MXNet's batches are made: see `tuiapp.trainers.sources.augmentation`.

It needs no MXNet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from tuiapp.trainers.sources.augmentation import PAD


def change(images: npt.NDArray[Any], drawn: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Returns cropped and flipped images: of [N, H, W, C], as they are stored, to the same."""
    if "top" in drawn:
        padded = np.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
        windows = sliding_window_view(padded, images.shape[1:3], axis=(1, 2))
        images = windows[np.arange(len(images)), drawn["top"], drawn["left"]].transpose(0, 2, 3, 1)
    return np.where(drawn["flip"][:, None, None, None], images[:, :, ::-1], images)


def smooth(labels: npt.NDArray[np.int32], classes: int, smoothing: float) -> npt.NDArray[np.float32]:
    """Returns the classes' shares of labels […], float32 [… classes]: all share `smoothing`, the label has the rest."""
    shares = np.eye(classes)[labels] * (1 - smoothing) + smoothing / classes
    return shares.astype(np.float32)


def mix(
    images: npt.NDArray[Any], shares: npt.NDArray[np.float32], weight: npt.NDArray[np.float32]
) -> list[npt.NDArray[Any]]:
    """Returns mixtures of images, [N, 2, H, W, C] as stored, and of classes' shares, [N, 2, classes]: both float32."""
    floats = images.astype(np.float32) / 255 if images.dtype == np.uint8 else images
    mixed = []
    for both in (floats, shares):
        by_example = weight.reshape(-1, *[1] * (both.ndim - 2))
        mixed.append(by_example * both[:, 0] + (1 - by_example) * both[:, 1])
    return mixed
