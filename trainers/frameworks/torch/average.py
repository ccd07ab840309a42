"""An exponential moving average of the weights, which is what is evaluated, saved as the model and exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tuiapp.trainers.config.run_config import RunConfig


class Average:
    """The average of a model's parameters, from their present values on, where `ema` says so; of none otherwise.

    Buffers, such as BatchNorm's running statistics, are those of the model. Of parameters that are split over the ranks
    each rank averages its part. Those of bfloat16 and float16 have an average in float32: in their own type most of its
    updates would be rounded away.
    """

    def __init__(self, config: RunConfig, model: nn.Module) -> None:
        self._decay = config.ema
        self._parameters = dict(model.named_parameters()) if config.ema else {}
        self.kept = {
            name: one.detach().to(torch.promote_types(one.dtype, torch.float32), copy=True)
            for name, one in self._parameters.items()
        }
        """By the parameters' names."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after a step, counted from 1; see `RunConfig.ema`."""
        if self.kept:
            decay = min(self._decay, (1 + step) / (10 + step))
            kept, present = ([*map(own_part, one.values())] for one in (self.kept, self._parameters))
            present = [one.to(average.dtype) for one, average in zip(present, kept, strict=True)]
            torch._foreach_lerp_(kept, present, 1 - decay)

    @contextmanager
    def used(self) -> Iterator[None]:
        """The model has the averaged weights for as long as this lasts."""
        rounded = {name: self.kept[name].clone() for name, one in self._parameters.items() if one.itemsize < 4}
        self._swap()
        try:
            yield
        finally:
            self._swap()
            for name, exact in rounded.items():
                own_part(self.kept[name]).copy_(own_part(exact))

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
