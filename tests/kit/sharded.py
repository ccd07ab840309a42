"""Arrays as the backends report them: which device holds which part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import msgspec

from tests.kit import histories as h
from tuiapp.trainers.config.catalog import MODELS
from tuiapp.trainers.config.mesh import OUTPUTS, Mesh, split_of
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Held, RankStarted, RunStarted, Shard, Sharding


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


def two_axes(batch: int = 2, model: int = 2) -> list[AnyEvent]:
    """A run of jax-sharding that trains `mlp` on a mesh of two axes, as it reports its arrays."""
    mesh, devices = {"batch": batch, "model": model}, batch * model
    config = RunConfig(
        backend="jax-sharding", model="mlp", platform="cpu", devices=devices, mesh=str(Mesh(batch, model))
    )
    events: list[AnyEvent] = []
    for event in h.running(devices):
        match event:
            case RunStarted():
                events.append(msgspec.structs.replace(event, config=to_toml_values(config)))
            case RankStarted():
                events.append(msgspec.structs.replace(event, device=f"cpu:{event.rank}"))
            case Sharding():
                pass
            case _:
                events.append(event)
    arrays = [
        named("batch", [48, 28, 28, 1], mesh, ["batch", None, None, None]),
        named("labels", [48], mesh, ["batch"]),
    ]
    weights = []
    for name, shape in MODELS["mlp"].size((28, 28, 1), 10).weights.items():
        split = split_of(name, shape, OUTPUTS, model)
        spec = ["model" if axis == split.axis else None for axis in range(len(shape))]
        weights.append(msgspec.structs.replace(named(f"parameter {name}", shape, mesh, spec), why_whole=split.why_not))
    first = weights[0]
    moments = [msgspec.structs.replace(first, array=f"optimizer {field} of fc1.kernel") for field in ("mu", "nu")]
    whole = sum(4 * math.prod(one.shape) for one in weights)
    exchanged = {
        "forward": {"all-gather": 36_864, "all-reduce": 320},
        "backward": {"all-gather": 12_288, "all-reduce": 507_172},
    }
    held = [
        Held(
            rank=rank,
            device=f"cpu:{rank}",
            held={"parameters": own, "optimizer": 2 * own + 12},
            whole={"parameters": whole, "optimizer": 2 * whole + 12},
            exchanged={} if rank else exchanged,
            **h.at(2),
        )
        for rank in range(devices)
        for own in [sum(shard.bytes for one in weights for shard in one.shards if shard.rank == rank)]
    ]
    return [*events, *arrays, first, *moments, *weights[1:], *held]
