"""How arrays lie on the devices: JAX arrays, PyTorch DTensors and tensors."""

from __future__ import annotations

import sys
from typing import Any

from tuiapp.trainers.contract.events import Shard, Sharding


def layout(name: str, array: Any, rank: int) -> Sharding:
    """Returns the event that describes an array; raises TypeError if it is neither JAX's nor PyTorch's."""
    if (jax := sys.modules.get("jax")) and isinstance(array, jax.Array):
        return _of_jax(name, array, rank)
    if (torch := sys.modules.get("torch")) and isinstance(array, torch.Tensor):
        return _of_torch(name, array, rank)
    raise TypeError(f"{type(array).__name__} is neither a JAX array nor a PyTorch tensor")


def _of_jax(name: str, array: Any, rank: int) -> Sharding:
    sharding = array.sharding
    mesh = {str(axis): size for axis, size in sharding.mesh.shape.items()} if hasattr(sharding, "mesh") else {}
    spec = [*getattr(sharding, "spec", ()), *[None] * array.ndim][: array.ndim]
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    alone = len({device.process_index for device in devices}) == 1
    shards = [
        Shard(
            # One process for all devices reports each as if it were a rank.
            rank=devices.index(shard.device) if alone else rank,
            device=str(shard.device),
            index=[part.indices(size)[:2] for part, size in zip(shard.index, array.shape, strict=True)],
            bytes=shard.data.nbytes,
        )
        for shard in array.addressable_shards
    ]
    axes = ["+".join(axis) if isinstance(axis, tuple) else axis for axis in spec]
    return Sharding(array=name, shape=list(array.shape), dtype=str(array.dtype), mesh=mesh, spec=axes, shards=shards)


def _of_torch(name: str, array: Any, rank: int) -> Sharding:
    shape, mesh, spec = list(array.shape), dict[str, int](), list[str | None]([None] * array.ndim)
    offsets, local = [0] * array.ndim, array
    if hasattr(array, "placements"):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        local = array.to_local()
        names = array.device_mesh.mesh_dim_names or [f"axis {number}" for number in range(array.device_mesh.ndim)]
        mesh = dict(zip(names, array.device_mesh.shape, strict=True))
        for axis, placement in zip(names, array.placements, strict=True):
            if placement.is_shard():
                spec[placement.dim] = "+".join(filter(None, (spec[placement.dim], axis)))
        _, starts = compute_local_shape_and_global_offset(array.shape, array.device_mesh, array.placements)
        offsets = list(starts)
    index = [(start, start + size) for start, size in zip(offsets, local.shape, strict=True)]
    size = local.numel() * local.element_size()
    shard = Shard(rank=rank, device=str(local.device), index=index, bytes=size)
    dtype = str(array.dtype).removeprefix("torch.")
    return Sharding(array=name, shape=shape, dtype=dtype, mesh=mesh, spec=spec, shards=[shard])
