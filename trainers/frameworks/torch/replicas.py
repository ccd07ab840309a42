"""The checksums of the ranks' replicas; see `tuiapp.trainers.rank.replicas`."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tuiapp.trainers.rank.replicas import STATISTICS, Checksums

AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
"""By bytes of a value; of more each four bytes are one integer."""


def replica_checksums(model: nn.Module, *, with_statistics: bool) -> tuple[Checksums, list[int]]:
    """The checksums of all ranks' parameters and buffers, which they exchange: every rank calls this.

    BatchNorm's running statistics are among them only `with_statistics`, if all ranks have the same. Also returns a
    number for the model of each rank's GPU.
    """
    arrays = {
        name: array
        for name, array in (*model.named_parameters(), *model.named_buffers())
        if with_statistics or not name.endswith(STATISTICS)
    }
    sums = checksums(arrays.values())
    name = torch.cuda.get_device_name(sums.device) if sums.is_cuda else ""
    # As many bits as an int32 has above 0.
    own = torch.cat([sums, sums.new_tensor([crc32(name.encode()) >> 1])])
    gathered = own.new_empty((dist.get_world_size(), len(own)))
    dist.all_gather([*gathered], own)
    found = gathered.numpy(force=True)
    return (list(arrays), found[:, :-1]), found[:, -1].tolist()


@torch.no_grad()
def checksums(arrays: Iterable[Tensor]) -> Tensor:
    """The checksum of each array, int32 [arrays], on their device."""
    return torch.stack([_bits(array).sum(dtype=torch.int32) for array in arrays])


def _bits(array: Tensor) -> Tensor:
    dtype = AS_INTEGERS.get(array.element_size())
    return array.view(dtype) if dtype else array.reshape(-1).view(torch.int32)
