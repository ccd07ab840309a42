"""Augmented images with PyTorch, on their device: see `trainers.sources.augmentation`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from trainers.sources.augmentation import PAD


def change(x: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
    """Cropped and flipped images: of [N, H, W, C], as they are stored, to the same."""
    height, width = x.shape[1:3]
    if "top" in draws:
        windows = F.pad(x, (0, 0, *[PAD] * 4)).unfold(1, height, 1).unfold(2, width, 1)
        places = torch.arange(len(x), device=x.device), draws["top"].long(), draws["left"].long()
        x = windows[places].permute(0, 2, 3, 1)
    if "flip" in draws:
        x = torch.where(draws["flip"].view(-1, 1, 1, 1), x.flip(2), x)
    return x


def mix(x: Tensor, y: Tensor, weight: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mixtures of images, float32 [N, 2, …], and of labels, int64 [N, 2]: float32 [N, …] and [N, classes].

    The cross entropy with mixed labels is the mixture of those with both: λ·CE(y₁) + (1 − λ)·CE(y₂).
    """
    own, other = x.unbind(1)
    both = F.one_hot(y, classes).float()
    return torch.lerp(other, own, weight.view(-1, *[1] * (own.dim() - 1))), torch.lerp(
        both[:, 1], both[:, 0], weight[:, None]
    )
