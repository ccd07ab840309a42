"""The checksums of the ranks' replicas; see `tuiapp.trainers.rank.replicas`."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tuiapp.trainers.rank.replicas import STATISTICS, Checksums

AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
"""By bytes of a value; of more each four bytes are one integer."""


def replica_checksums(model: nn.Module, *, with_statistics: bool) -> Checksums:
    """The checksums of all ranks' parameters and buffers, which they exchange: every rank calls this.

    BatchNorm's running statistics are among them only `with_statistics`, if all ranks have the same.
    """
    arrays = {
        name: array
        for name, array in (*model.named_parameters(), *model.named_buffers())
        if with_statistics or not name.endswith(STATISTICS)
    }
    own = checksums(arrays.values())
    gathered = own.new_empty((dist.get_world_size(), len(own)))
    dist.all_gather([*gathered], own)
    return list(arrays), gathered.numpy(force=True)


@torch.no_grad()
def checksums(arrays: Iterable[Tensor]) -> Tensor:
    """The checksum of each array, int32 [arrays], on their device."""
    return torch.stack([_bits(array).sum(dtype=torch.int32) for array in arrays])


def _bits(array: Tensor) -> Tensor:
    dtype = AS_INTEGERS.get(array.element_size())
    return array.view(dtype) if dtype else array.reshape(-1).view(torch.int32)
