"""Histories of runs on several nodes, made of those of runs on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tests.kit import histories as h
from tuiapp.trainers.contract.events import (
    Alert,
    AnyEvent,
    DeviceSample,
    HostSample,
    Node,
    Queued,
    RankFailed,
    RankStarted,
    RunStarted,
    Sharding,
    Stacks,
)

JOINED_S = 0.4
"""After the start."""


def host(node: int) -> str:
    return "gpubox" if node == 0 else f"gpubox{node + 1:02}"


def on_nodes(events: Sequence[AnyEvent], nodes: int, world_size: int) -> list[AnyEvent]:
    """The same run on nodes with equally many ranks each; hosts are sampled on each, with figures of their own."""
    each = world_size // nodes
    found: list[AnyEvent] = []
    for event in events:
        if isinstance(event, RunStarted):
            config = event.config | {"launcher": "slurm", "nodes": nodes}
            found.append(replace(event, nodes=nodes, config=config))
            found += [Node(node=node, host=host(node), state="joined", **h.at(JOINED_S)) for node in range(1, nodes)]
        elif isinstance(event, HostSample):
            found += [_host_sample(event, node) for node in range(nodes)]
        elif isinstance(event, DeviceSample):
            busy = 97.0 - event.index % 16 - (event.utilization_percent or 0) % 1
            found.append(replace(event, node=event.index // each, index=event.index % each, utilization_percent=busy))
        elif isinstance(event, Sharding):
            found.append(_sharding(event, each, world_size))
        elif (rank := getattr(event, "rank", None)) is not None:
            changes: dict[str, Any] = {"node": rank // each}
            if isinstance(event, RankStarted) and event.uuid:
                changes["device"] = f"cuda:{rank % each}"
            found.append(replace(event, **changes))
        else:
            found.append(event)
    return found


def running(nodes: int = 2, world_size: int = 16, *, gpus: bool = True) -> list[AnyEvent]:
    """A run in its middle; the second node's last rank lags, and its steps take longer."""
    events = h.beginning(world_size, gpus=gpus)
    late = 2 * world_size // nodes - 1
    for first in range(1, 121, 20):
        last, seconds = first + 19, 2.0 + (first + 19) / 20
        for rank in range(world_size):
            slow = rank == late
            behind = 4 if slow and first > 1 else 0
            steps = h.steps(rank, first - behind, last - (4 if slow else 0), seconds, pace=0.062 if slow else 0.05)
            events.append(steps)
        events += h.samples(world_size, seconds, gpus=gpus)
    return on_nodes(events, nodes, world_size)


def troubled(nodes: int = 4, world_size: int = 32) -> list[AnyEvent]:
    """One node has fallen silent, another is lost."""
    events = running(nodes, world_size)
    return [
        *events,
        Node(node=2, host=host(2), state="silent", **h.at(8.4)),
        Node(node=3, host=host(3), state="lost", **h.at(8.5)),
    ]


def hanging(nodes: int = 2, world_size: int = 16) -> list[AnyEvent]:
    """The last rank but three does not get to its collective, in which all others wait."""
    late, each = world_size - 4, world_size // nodes
    where = f"rank {late} (node {late // each}, {host(late // each)})"
    words = f"{where} is not where the others wait in a collective: train.py, line 21, in step"
    text = f"no progress for 31 s: all ranks are at step 120 (training); {words}"
    return [
        *running(nodes, world_size),
        *(
            Stacks(rank=rank, node=rank // each, pid=4121 + rank, text=_stacks(rank, late), **h.at(40.0))
            for rank in range(world_size)
        ),
        Alert(kind="hang", severity="error", rank=late, node=late // each, step=120, text=text, **h.at(40.1)),
    ]


def failed(nodes: int = 2, world_size: int = 16) -> list[AnyEvent]:
    """The last rank has run out of memory, then its node's first."""
    each = world_size // nodes
    first = RankFailed(
        rank=world_size - 1,
        exit_code=1,
        node=nodes - 1,
        error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        traceback='Traceback (most recent call last):\n  File "/home/ada/train.py", line 21, in step\n',
        step=120,
        **h.at(8.6),
    )
    then = RankFailed(rank=world_size - each, signal="SIGTERM", node=nodes - 1, step=120, **h.at(8.7))
    return [*running(nodes, world_size), first, then]


def _stacks(rank: int, late: int) -> str:
    last = (
        '  File "/home/ada/train.py", line 21 in step'
        if rank == late
        else (
            '  File "/venv/lib/torch/distributed/distributed_c10d.py", line 2810 in all_reduce\n'
            '  File "/home/ada/train.py", line 34 in step'
        )
    )
    return (
        f"Thread 0x{rank:016x} (most recent call first):\n"
        f'  File "/usr/lib/python3.11/threading.py", line {320 + rank % 3 * 4} in wait\n\n'
        f"Current thread 0x{rank + 4096:016x} (most recent call first):\n{last}\n"
        '  File "/home/ada/train.py", line 60 in <module>'
    )


def queued(reason: str = "Resources") -> Queued:
    """The run's Slurm job waits."""
    return Queued(job="12", reason=reason, start="2026-11-20T11:30:00", **h.at(0.0))


def _sharding(event: Sharding, each: int, world_size: int) -> Sharding:
    """With at least one row of the batch for each device, named as its node names it."""
    (shard,) = event.shards
    rank = shard.rank
    device = "cpu" if shard.device == "cpu" else f"cuda:{rank % each}"
    shape, index, size = event.shape, shard.index, shard.bytes
    if event.spec[0] is not None and world_size > shape[0]:
        shape, index, size = [world_size, *shape[1:]], [(rank, rank + 1), *index[1:]], 3136
    shards = [replace(shard, device=device, index=index, bytes=size)]
    return replace(event, node=rank // each, shape=shape, shards=shards)


def _host_sample(sample: HostSample, node: int) -> HostSample:
    grown = sample.memory_used_bytes + node * 100 * h.MIB
    return replace(sample, node=node, cpu_percent=sample.cpu_percent / (node % 3 + 1), memory_used_bytes=grown)
