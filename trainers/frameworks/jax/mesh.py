"""A run's devices as a mesh, and how the training state lies on it: whole on each, or weights split over some."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tuiapp.trainers.config.catalog import MODELS
from tuiapp.trainers.config.mesh import AXES, OUTPUTS, split_of
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.user_code import PY, UserCodeError
from tuiapp.trainers.contract.events import Held
from tuiapp.trainers.frameworks.jax.devices import leaf_name, pick_devices, report_array
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources.user_code import mesh_rules

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
DTYPE_BYTES = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "bf16": 2,
    "f16": 2,
    "f32": 4,
    "s32": 4,
    "u32": 4,
    "f64": 8,
    "s64": 8,
    "u64": 8,
}
"""Bytes of a value, by XLA's name of its type."""

_COLLECTIVE = re.compile(rf"= (?P<made>.*?) (?P<kind>{'|'.join(COLLECTIVES)})(?P<start>-start)?\((?P<operands>[^)]*)\)")
ARRAY = re.compile(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]")
_NAME = re.compile(r'op_name="([^"]*)"')
_VALUE = re.compile(r"%[\w.-]+")


class DeviceMesh:
    """The devices along "batch" and, where weights are split, "model".

    The rank of a device is its place in the mesh, the axis "batch" first.
    """

    def __init__(self, plan: Plan, report: Reporter) -> None:
        config, devices = plan.config, pick_devices(plan, report)
        self.batch, self.model = plan.mesh
        axes = AXES if self.model > 1 else AXES[:1]
        # Node by node, as their processes take their parts of a batch.
        self.mesh = Mesh(np.array(devices).reshape(plan.mesh[: len(axes)]), axes)
        self.split = NamedSharding(self.mesh, P("batch"))
        """The sharding of a batch."""
        self.whole = NamedSharding(self.mesh, P())
        self.each = NamedSharding(self.mesh, P(axes))
        """The sharding of a value of each device."""
        self._model = config.model
        self._rules = mesh_rules(config.model) if config.model.startswith(PY) else MODELS[config.model].rules
        self.why_not: dict[str, str] = {}
        """Weights that are whole although a rule would split them → why."""

    def of_weight(self, name: str, shape: Sequence[int]) -> NamedSharding:
        """Returns how a weight lies on the devices, by its name; raises UserCodeError for a rule that does not fit."""
        try:
            split = split_of(name, tuple(shape), OUTPUTS if self._rules is None else self._rules, self.model)
        except ValueError as error:
            raise UserCodeError(f"mesh_rules of {self._model}: {error}") from error
        if split.why_not:
            self.why_not[name] = split.why_not
        return self.whole if split.axis is None else NamedSharding(self.mesh, P(*[None] * split.axis, "model"))

    def of_weights(self, tree: Any) -> Any:
        """Returns the shardings of a tree of weights, by the names of their paths."""
        return jax.tree_util.tree_map_with_path(lambda path, leaf: self.of_weight(leaf_name(path), leaf.shape), tree)

    def as_weights(self, tree: Any, weights: Any) -> Any:
        """Returns the shardings of an optimizer's state: what is of a weight lies as that does."""
        by_path = {
            path: (leaf.shape, self.of_weight(leaf_name(path), leaf.shape))
            for path, leaf in jax.tree_util.tree_leaves_with_path(weights)
        }

        def of(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
            layouts = (by_path[path[start:]] for start in range(len(path)) if path[start:] in by_path)
            shape, sharding = next(layouts, (None, self.whole))
            return sharding if leaf.shape == shape else self.whole

        return jax.tree_util.tree_map_with_path(of, tree)

    def parts_of(self, shardings: Any) -> list[int]:
        """Returns in how many parts the devices along "model" have each of a tree's arrays."""
        return [self.model if "model" in leaf.spec else 1 for leaf in jax.tree.leaves(shardings)]

    @staticmethod
    def put(tree: Any, shardings: Any) -> Any:
        """Puts each array, which every process has whole, on the devices with its own sharding."""
        return jax.tree.map(
            lambda leaf, sharding: jax.make_array_from_callback(np.shape(leaf), sharding, lambda part: leaf[part]),
            tree,
            shardings,
        )

    def of_devices(self, losses: Array) -> Array:
        """Returns the mean of each device's part of the examples' losses: from float32 [global batch] to [devices]."""
        return jnp.repeat(losses.reshape(self.batch, -1).mean(axis=1), self.model)

    def report_parts(
        self,
        report: Reporter,
        weights: Mapping[str, Array],
        optimizer_state: Any,
        average: Any,
        program: Callable[[], str | None],
    ) -> None:
        """Reports each weight's layout, what each device holds, and what a step exchanges, if weights are split.

        `average` is that of the weights, if one is kept, and `program` gives the compiled step's text.
        """
        if self.model == 1:
            return
        for name, array in weights.items():
            report_array(report, f"parameter {name}", array, self.why_not.get(name, ""))
        kinds: dict[str, list[Array]] = {
            "parameters": [*weights.values()],
            "optimizer": jax.tree.leaves(optimizer_state),
        }
        if kept := jax.tree.leaves(average):
            kinds["average"] = kept
        ranks = {device: rank for rank, device in enumerate(self.mesh.devices.flat)}
        held = {device: dict.fromkeys(kinds, 0) for device in self.mesh.local_devices}
        for kind, arrays in kinds.items():
            for array in arrays:
                for shard in array.addressable_shards:
                    held[shard.device][kind] += shard.data.nbytes
        totals = {kind: sum(array.nbytes for array in arrays) for kind, arrays in kinds.items()}
        collectives = exchanged(program() or "")
        for device, held_bytes in held.items():
            reported = collectives if not ranks[device] else {}
            report.send(Held(rank=ranks[device], device=str(device), held=held_bytes, whole=totals, exchanged=reported))


def exchanged(program: str) -> dict[str, dict[str, int]]:
    """Returns a compiled program's collectives: part of a step → collective, and when → bytes of the arrays they make.

    The parts are the forward pass, the backward pass and the update, as far as the operations' names say. Of a loop,
    such as that over parts of a batch, those of one round are counted.
    """
    collectives: dict[str, dict[str, int]] = {}
    names: dict[str, str] = {}
    # From the last on: XLA joins collectives to one without a name, which gets that of the first that takes a result.
    for line in reversed(program.splitlines()):
        made, *taken = _VALUE.findall(line) or [""]
        name = named[1] if (named := _NAME.search(line)) else names.get(made, "")
        names |= dict.fromkeys(taken, name)
        match = _COLLECTIVE.search(line)
        if not match:
            continue
        arrays = ARRAY.findall(match["made"])
        operands = match["operands"].count("%")
        if match["start"] and len(arrays) > operands:
            # What it is made of comes before what is made, and on some platforms handles after it.
            arrays = arrays[operands : 2 * operands]
        count = sum(array_bytes(*array) for array in arrays)
        part = "backward" if "transpose(" in name else "forward" if "jvp(" in name else "update"
        calls = collectives.setdefault(part, {})
        calls[match["kind"]] = calls.get(match["kind"], 0) + count
    return collectives


def array_bytes(dtype: str, shape: str) -> int:
    """Returns the bytes of an array by XLA's words: "f32" and "2,8"."""
    return DTYPE_BYTES.get(dtype, 4) * prod(int(size) for size in shape.split(",") if size)
