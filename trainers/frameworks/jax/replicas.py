"""The checksums of the devices' replicas; see `tuiapp.trainers.rank.replicas`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec as P

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.frameworks.jax.devices import leaf_name
from tuiapp.trainers.rank.replicas import Checksums

ChecksumsOf: TypeAlias = Callable[[Mapping[str, Any]], Checksums]

AS_INTEGERS = {1: jnp.uint8, 2: jnp.uint16}
"""The integer type, by bytes of a value; of larger values each four bytes are one integer."""


def replica_checksums(plan: Plan, tree: Mapping[str, Any], shardings: Any) -> ChecksumsOf:
    """Returns what gives the checksums of all devices' arrays, of a tree such as this one; all processes call it.

    `shardings` is one for all arrays, or a tree of them: each is replicated, has replicas along a leading axis split,
    or has parts along "model", of which each device adds up its own.
    """
    mesh = jax.tree.leaves(shardings)[0].mesh

    def of_device(tree: Mapping[str, Any]) -> Array:
        return jnp.stack([checksum(leaf) for leaf in jax.tree.leaves(tree)])[None]

    # Each device adds up what itself has. To `jit` alone replicas are one array, of which it might take any.
    specs = jax.tree.map(lambda sharding: sharding.spec, shardings)
    mapped = jax.shard_map(of_device, mesh=mesh, in_specs=(specs,), out_specs=P(mesh.axis_names), check_vma=False)
    compiled = jax.jit(mapped).lower(tree).compile() if plan.compares_replicas else jax.jit(mapped)
    names = [leaf_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]

    def checksums_of(tree: Mapping[str, Any]) -> Checksums:
        return names, multihost_utils.process_allgather(compiled(tree), tiled=True)

    return checksums_of


def checksum(array: Array) -> Array:
    """Returns the checksum of an array, uint32 []."""
    if jnp.iscomplexobj(array):
        array = jnp.stack([array.real, array.imag])
    if array.dtype != bool:
        array = jax.lax.bitcast_convert_type(array, AS_INTEGERS.get(array.dtype.itemsize, jnp.uint32))
    return array.sum(dtype=jnp.uint32)
