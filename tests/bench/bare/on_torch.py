"""What the bare loops of PyTorch set to compute as tuiapp does: the guides leave the frameworks' defaults."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.bench.bare.common import Race
from tuiapp.trainers.frameworks.torch.compile import compile_model


def set_arithmetic(race: Race) -> None:
    """Sets how float32 is computed in; by default convolutions on a GPU are TF32, and products are not."""
    torch.backends.cudnn.allow_tf32 = race.precision != "float32"
    torch.set_float32_matmul_precision("highest" if race.precision == "float32" else "high")
    torch.backends.cudnn.benchmark = race.platform == "cuda"


def autocast(race: Race) -> AbstractContextManager[object]:
    return torch.autocast(race.platform, torch.bfloat16, enabled=race.precision == "bfloat16")


def memory_format(race: Race) -> torch.memory_format:
    """Of images and weights."""
    on_tensor_cores = race.platform == "cuda" and race.precision != "float32"
    return torch.channels_last if on_tensor_cores else torch.contiguous_format


def as_tensor(x: npt.NDArray[Any]) -> Tensor:
    """Images as [N, C, H, W]; tokens as they are."""
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else torch.from_numpy(x)


def moved(x: Tensor, device: torch.device, race: Race) -> Tensor:
    return x.to(device, memory_format=memory_format(race)) if x.ndim == 4 else x.to(device)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def compiled(race: Race, model: nn.Module) -> nn.Module:
    graphs = race.platform == "cuda" and race.devices == 1
    return compile_model(model, cuda_graphs=graphs) if race.compile else model


def finish(race: Race) -> None:
    """Waits until all that was begun is computed."""
    if race.platform == "cuda":
        torch.cuda.synchronize()
