"""How a run's arrays are laid out on the devices."""

from __future__ import annotations

import msgspec

from trainers.contract.event import Event


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    device: str
    index: list[tuple[int, int]]
    """Start and stop in the global array, one pair per dimension."""
    bytes: int


class Sharding(Event, frozen=True, kw_only=True, tag="sharding"):
    """The layout of one process's shards of an array; a view joins the events of an `array` over all ranks."""

    array: str
    """"batch", "labels", "parameter conv1.weight", …"""
    shape: list[int]
    """Of the global array."""
    dtype: str
    mesh: dict[str, int]
    """Mesh axis → devices along it."""
    spec: list[str | None]
    """Per dimension the mesh axis that splits it, null where it is not split."""
    shards: list[Shard]
