"""Arrays as the backends report them: which device holds which part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from tests import histories as h
from trainers.contract.events import AnyEvent, Shard, Sharding


def named(array: str, shape: Sequence[int], mesh: dict[str, int], spec: Sequence[str | None]) -> Sharding:
    """As JAX's NamedSharding lays it out: along the mesh's axes, in the order of its devices."""
    shards = []
    for number, place in enumerate(product(*(range(size) for size in mesh.values()))):
        at = dict(zip(mesh, place, strict=True))
        index = []
        for size, axis in zip(shape, spec, strict=True):
            count = mesh[axis] if axis else 1
            part = -(-size // count)
            start = min(size, part * (at[axis] if axis else 0))
            index.append((start, min(size, start + part)))
        held = 4 * math.prod(stop - start for start, stop in index)
        shards.append(Shard(rank=number, device=f"cpu:{number}", index=index, bytes=held))
    return Sharding(
        array=array, shape=list(shape), dtype="float32", mesh=mesh, spec=list(spec), shards=shards, **h.at(2)
    )


def jax_run(devices: int, *arrays: Sharding) -> list[AnyEvent]:
    """The beginning of a run with these arrays."""
    return [h.started(devices), *arrays]
