"""How one reported array is laid out on the devices, joined over the ranks that report it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias

from tuiapp.trainers.contract.events import Shard, Sharding

Device: TypeAlias = tuple[int, str]
"""Rank and device: two ranks on CPUs both call theirs "cpu"."""

Block: TypeAlias = tuple[tuple[int, int], ...]  # start and stop per dimension
Layout: TypeAlias = Literal["single", "replicated", "split", "split and replicated"]


@dataclass(slots=True)
class ArrayState:
    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    mesh: dict[str, int] = field(default_factory=dict)
    spec: tuple[str | None, ...] = ()
    shards: dict[Device, list[Shard]] = field(default_factory=dict)
    why_whole: str = ""

    def add(self, event: Sharding) -> None:
        """Adds one process's report; another shape or mesh starts a new array."""
        shape, spec = tuple(event.shape), tuple(event.spec)
        if (shape, event.dtype, event.mesh, spec) != (self.shape, self.dtype, self.mesh, self.spec):
            self.shape, self.dtype, self.mesh, self.spec = shape, event.dtype, event.mesh, spec
            self.shards.clear()
        self.why_whole = event.why_whole or self.why_whole
        reported: dict[Device, list[Shard]] = {}
        for shard in event.shards:
            reported.setdefault((shard.rank, shard.device), []).append(shard)
        self.shards.update(reported)

    @property
    def devices(self) -> list[Device]:
        return sorted(self.shards)

    def blocks(self) -> dict[Block, list[Device]]:
        found: dict[Block, list[Device]] = {}
        for device in self.devices:
            for shard in self.shards[device]:
                found.setdefault(tuple((start, stop) for start, stop in shard.index), []).append(device)
        return dict(sorted(found.items()))

    @property
    def layout(self) -> Layout:
        blocks = self.blocks()
        copies = max(map(len, blocks.values()), default=0)
        if len(blocks) <= 1:
            return "replicated" if copies > 1 else "single"
        return "split and replicated" if copies > 1 else "split"

    @property
    def bytes_per_device(self) -> int:
        return max((sum(shard.bytes for shard in shards) for shards in self.shards.values()), default=0)

    def split_dimensions(self) -> list[int]:
        blocks = list(self.blocks())
        dimensions = min(map(len, blocks), default=0)
        return [d for d in range(dimensions) if len({block[d] for block in blocks}) > 1]

    def by_node(self, node_of: Callable[[int], int]) -> ArrayState | None:
        """Returns the array as whole nodes hold it; None where the parts of some node's devices form no block."""
        found = ArrayState(self.name, self.shape, self.dtype, self.mesh, self.spec)
        parts: dict[int, dict[Block, int]] = {}
        for (rank, _), shards in self.shards.items():
            parts.setdefault(node_of(rank), {}).update((tuple(shard.index), shard.bytes) for shard in shards)
        for node, blocks in sorted(parts.items()):
            sides = [
                (min(start for start, _ in side), max(stop for _, stop in side)) for side in zip(*blocks, strict=True)
            ]
            if _volume(sides) != sum(map(_volume, blocks)):
                return None
            shard = Shard(rank=node, device=f"n{node}", index=sides, bytes=sum(blocks.values()))
            found.shards[node, shard.device] = [shard]
        return found


def _volume(block: Iterable[tuple[int, int]]) -> int:
    return prod(stop - start for start, stop in block)


def letter(index: int) -> str:
    """Returns a device's letter: a, b … z, then aa and so on."""
    name = ""
    index += 1
    while index > 0:
        index, rest = divmod(index - 1, 26)
        name = chr(ord("a") + rest) + name
    return name
