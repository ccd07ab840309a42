"""`python -m tuiapp.trainers.frameworks.jax.bandwidth MOST_BYTES SECONDS`: all-reduces over this process's devices."""

from __future__ import annotations

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tuiapp.trainers.rank.bandwidth import clock, measure, teller


def main() -> None:
    """Measures, over as many devices as the environment shows."""
    most_bytes, seconds = int(sys.argv[1]), float(sys.argv[2])
    mesh = Mesh(np.array(jax.local_devices()), ("batch",))
    split = NamedSharding(mesh, P("batch"))
    all_reduce = jax.jit(
        jax.shard_map(lambda part: jax.lax.psum(part, "batch"), mesh=mesh, in_specs=P("batch"), out_specs=P("batch"),
                      check_vma=False)
    )  # fmt: skip
    array = jnp.zeros((), jnp.float32)

    def time_of(size: int, calls: int) -> float:
        nonlocal array
        if array.nbytes != mesh.size * size:
            array = jnp.zeros(())
            array = jnp.zeros((mesh.size, size // 4), jnp.float32, device=split)
            # Compiled for each shape.
            all_reduce(array).block_until_ready()
        return clock(lambda: reduce(array, calls), lambda: None)

    def reduce(array: Array, calls: int) -> None:
        for _ in range(calls):
            # Devices of the CPU that are given several collectives at once may wait for each other for ever.
            array = all_reduce(array).block_until_ready()

    measure("xla", time_of, teller(int(os.environ.get("RANK", "0"))), most_bytes, seconds)


if __name__ == "__main__":
    main()
