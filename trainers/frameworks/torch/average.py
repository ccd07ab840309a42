"""An exponential moving average of the weights, which is what is evaluated, saved as the model and exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainers.config.run_config import RunConfig


class Average:
    """Of a model's parameters, from their present values on, where `ema` says so; of none otherwise.

    Buffers, such as BatchNorm's running statistics, are those of the model. Of parameters that are split over the ranks
    each rank averages its part.
    """

    def __init__(self, config: RunConfig, model: nn.Module) -> None:
        self._decay = config.ema
        self._parameters = dict(model.named_parameters()) if config.ema else {}
        self.kept = {name: one.detach().clone() for name, one in self._parameters.items()}
        """By the parameters' names."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after a step, counted from 1; see `RunConfig.ema`."""
        if self.kept:
            decay = min(self._decay, (1 + step) / (10 + step))
            kept, present = ([*map(own_part, one.values())] for one in (self.kept, self._parameters))
            torch._foreach_lerp_(kept, present, 1 - decay)

    @contextmanager
    def used(self) -> Iterator[None]:
        """The model has the averaged weights for as long as this lasts."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        # In place: FSDP, CUDA graphs and Keras know the parameters' memory.
        for kept, present in zip(self.kept.values(), self._parameters.values(), strict=True):
            one, other = own_part(kept), own_part(present)
            before = other.clone()
            other.copy_(one)
            one.copy_(before)


def own_part(tensor: Tensor) -> Tensor:
    """What this rank has of it, in the same memory."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
