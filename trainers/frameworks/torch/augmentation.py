"""Augmented images with PyTorch, on their device: see `tuiapp.trainers.sources.augmentation`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from tuiapp.trainers.sources.augmentation import PAD


def change(x: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
    """Cropped and flipped images: of [N, H, W, C], as they are stored, to the same.

    They lie in memory as those given, which decides the kernels of convolutions.
    """
    height, width = x.shape[1:3]
    made = torch.empty_like(x)
    if "top" in draws:
        windows = F.pad(x, (0, 0, *[PAD] * 4)).unfold(1, height, 1).unfold(2, width, 1)
        places = torch.arange(len(x), device=x.device), draws["top"].long(), draws["left"].long()
        x = windows[places].permute(0, 2, 3, 1)
    return torch.where(draws["flip"].view(-1, 1, 1, 1), x.flip(2), x, out=made)


def mix(x: Tensor, y: Tensor, weight: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mixtures of images, float32 [2 N, …], each before its partner, and of labels, int64 [N, 2]: [N, …], [N, classes].

    The cross entropy with mixed labels is the mixture of those with both: λ·CE(y₁) + (1 − λ)·CE(y₂).
    """
    by_image = weight.view(-1, *[1] * (x.dim() - 1))
    images = torch.lerp(x[1::2], x[::2], by_image, out=torch.empty_like(x[: len(y)]))
    own, other = F.one_hot(y, classes).float().unbind(1)
    return images, torch.lerp(other, own, weight[:, None])
