"""Estimates the memory that training takes on one device.

Counts what follows from the configuration. What a framework takes for itself (CUDA's context, cuDNN's workspaces,
compiled programs, about 0.3 to 1 GiB per process) is not counted: it depends on the machine, and is the same for every
model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor, prod

from tuiapp.trainers.config.catalog import BACKENDS, HALF, MODELS, OPTIMIZER_SLOTS, Shape, Size, frozen_weights
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import Dataset, find_dataset, is_examined, task_of
from tuiapp.trainers.config.division import devices_of_nodes, local_batches
from tuiapp.trainers.config.gpu_choice import pick
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.mesh import TRANSFORMER, mesh_of, split_of
from tuiapp.trainers.config.options import Problem
from tuiapp.trainers.config.run_config import RunConfig

FLOAT32_BYTES = 4
PLACE_BYTES = 8
"""Bytes of the place where max-pooling found a number: an int64."""
XLA_PLACE_BYTES = 16
"""An int32 for each axis."""
BACKWARD = 1.1
"""Times what is kept, at the most during the backward pass: gradients of one or two layers' outputs beside it."""
GIB = 1 << 30

RESIDENT_PART = 0.5
"""Share of a device's free memory that a data set may take: the rest is the model's."""

JAX_FRACTION = 0.75
"""Share of a GPU's total memory, free or not, that JAX takes at its start if nothing else is said."""
BESIDE_POOL_BYTES = GIB
"""What is left of the free memory for what JAX takes beside its pool: CUDA's context, cuDNN's workspaces, NCCL."""
LEAST_FREE_BYTES = GIB // 2
"""With less JAX does not even start on a GPU: CUDA's context alone takes about as much."""
JAX_MEMORY_VARIABLES = (
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",  # the older name; JAX refuses both at once
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
)
"""With any of these the user decides what JAX takes.

Source: https://docs.jax.dev/en/latest/gpu_memory_allocation.html
"""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one device."""

    parameters: int
    gradients: int
    optimizer: int
    """State kept between steps: momentum, averages of the gradients."""
    activations: int
    """What the forward pass keeps for the backward pass, and their gradients."""
    data: int
    """The data set, on the device as in its file: uint8, or float32."""
    average: int = 0
    """Bytes of the averaged copy of the weights, with `ema`."""

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.data + self.average


@dataclass(frozen=True, slots=True)
class Shortage:
    where: str
    wanted_bytes: int
    free_bytes: int


def can_estimate(config: RunConfig) -> bool:
    """Returns whether the memory can be estimated: what models and data of the user's own take may not be known."""
    model = MODELS.get(config.model)
    fits = model is not None and model.task == task_of(config.dataset).name and not is_examined(config.dataset)
    return fits and BACKENDS[config.backend].builtin


def estimate_memory(config: RunConfig) -> MemoryEstimate:
    """Returns what a placed configuration of a built-in trainer takes on each device.

    Raises DatasetError if the data file is missing or invalid.
    """
    data = find_dataset(config.dataset, config.context)
    size = MODELS[config.model].size(data.input_shape, data.classes)
    bytes_of = {name: FLOAT32_BYTES * prod(shape) for name, shape in size.weights.items()}
    if mesh_of(config.mesh, config.devices).model > 1:
        bytes_of = {name: bytes_of[name] // parts for name, _, parts, _ in split_weights(config, data)}
    frozen = frozen_weights(config.backend, config.freeze, bytes_of)
    # No framework keeps a gradient or optimizer state of what is frozen.
    weights, trained = sum(bytes_of.values()), sum(size for name, size in bytes_of.items() if name not in frozen)
    if BACKENDS[config.backend].splits_state:
        # What is gathered for as long as a block computes is not counted.
        weights, trained = (-(-size // max(1, config.devices)) for size in (weights, trained))
    return MemoryEstimate(
        parameters=weights,
        gradients=trained,
        optimizer=trained * slots(config),
        activations=_activations(config, size),
        data=data.decoded_bytes,
        average=weights if config.ema else 0,
    )


def _activations(config: RunConfig, size: Size) -> int:
    """Returns what the examples that a device takes at once keep for the backward pass, and what that makes of it."""
    # Under autocast the weights stay float32, the layers' outputs take half the space.
    number = FLOAT32_BYTES // 2 if config.precision in HALF else FLOAT32_BYTES
    per_example = BACKWARD * number * size.activations
    if BACKENDS[config.backend].engine == "jax":
        # PyTorch's attention computes the scores anew. XLA keeps them in float32, and what softmax makes of them.
        per_example += XLA_PLACE_BYTES * size.pooled + (FLOAT32_BYTES + number) * size.scores
        if config.devices > 1 and mesh_of(config.mesh, config.devices).model == 1:
            # There XLA splits loops around BatchNorm that it joins on one device, and keeps what lies between.
            per_example += number * size.normalized
    else:
        per_example += PLACE_BYTES * size.pooled
    examples = -(-max(local_batches(config)) // config.accumulate)
    # A transformer's layers take their inputs in the parts that the ones before them make; others gather them.
    parts = mesh_of(config.mesh, config.devices).model if MODELS[config.model].rules is TRANSFORMER else 1
    return int(per_example * examples) // parts


def split_weights(config: RunConfig, data: Dataset) -> list[tuple[str, Shape, int, str]]:
    """Returns each weight of a model of the catalog, its shape, in how many parts it is split, and why not in more."""
    model, parts = MODELS[config.model], mesh_of(config.mesh, config.devices).model
    weights = model.size(data.input_shape, data.classes).weights
    splits = ((name, shape, split_of(name, shape, model.rules, parts)) for name, shape in weights.items())
    return [(name, shape, 1 if split.axis is None else parts, split.why_not) for name, shape, split in splits]


def slots(config: RunConfig) -> int:
    """Returns how many arrays of the trained parameters' size the optimizer keeps."""
    return 0 if config.optimizer == "sgd" and not config.momentum else OPTIMIZER_SLOTS[config.optimizer]


def chosen_gpus(config: RunConfig, machine: Machine) -> list[Gpu]:
    """Returns the GPUs of a placed configuration; none on the CPU."""
    if config.platform != "cuda":
        return []
    # On several nodes each picks its own.
    chosen = config.device_ids or [gpu.uuid for gpu in pick(machine.gpus, devices_of_nodes(config)[0])]
    return [gpu for gpu in machine.gpus if gpu.uuid in chosen]


def free_memory(config: RunConfig, machine: Machine) -> list[tuple[str, int]]:
    """Returns the free bytes of each GPU, or of the host, for a placed configuration; unknown ones are left out."""
    if config.platform != "cuda":
        free = machine.memory_available_bytes
        return [] if free is None else [("this machine", free)]
    gpus = [(f"GPU {gpu.number}", free_bytes(gpu)) for gpu in chosen_gpus(config, machine)]
    return [(name, free) for name, free in gpus if free is not None]


def free_bytes(gpu: Gpu) -> int | None:
    """Returns what of its memory is free; None if the driver does not say."""
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    return gpu.memory_total_bytes - gpu.memory_used_bytes


def jax_memory_fraction(config: RunConfig, gpus: Iterable[Gpu]) -> float | None:
    """Returns what share of each GPU's memory JAX shall take, for as little as is free on the fullest of `gpus`.

    None if JAX's own share is free, if the user has decided it, or if the backend is not JAX's.
    """
    if not _divides(config):
        return None
    parts = []
    for gpu in gpus:
        free = free_bytes(gpu)
        if free is not None and gpu.memory_total_bytes:
            parts.append((free - _beside_pool(free)) / gpu.memory_total_bytes)
    least = min(parts, default=JAX_FRACTION)
    return floor(least * 10_000) / 10_000 if least < JAX_FRACTION else None


def _divides(config: RunConfig) -> bool:
    """Returns whether it is decided here what a configuration takes of its GPUs: JAX is told, if not by the user."""
    return BACKENDS[config.backend].engine == "jax" and not any(map(os.environ.get, JAX_MEMORY_VARIABLES))


def _beside_pool(free: int) -> int:
    """Returns what JAX needs of a GPU's free memory beside its pool."""
    return min(BESIDE_POOL_BYTES, free // 2)


def jax_pool_bytes(config: RunConfig, machine: Machine) -> int | None:
    """Returns what JAX takes at its start of each GPU of a placed configuration; None if it takes its own share."""
    # On several nodes each decides it for its own.
    gpus = chosen_gpus(config, machine) if config.launcher == "local" else []
    fraction = jax_memory_fraction(config, gpus)
    totals = [gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes]
    return None if fraction is None else int(fraction * min(totals))


def jax_memory_words(fraction: float) -> str:
    """Says what JAX takes, where that is not its own share."""
    return f"JAX takes {fraction:.1%} of each GPU's memory rather than {JAX_FRACTION:.0%}: no more is free"


def shortages(config: RunConfig, machine: Machine, estimate: MemoryEstimate) -> Sequence[Shortage]:
    """Places with too little free memory: each GPU must hold one device's share, the host all of them."""
    wanted = estimate.total if config.platform == "cuda" else on_host(config, estimate)
    pools = config.platform == "cuda" and BACKENDS[config.backend].engine == "jax"
    places = [
        Shortage(where, wanted + (_beside_pool(free) if pools else 0), free)
        for where, free in free_memory(config, machine)
    ]
    return [shortage for shortage in places if shortage.free_bytes < shortage.wanted_bytes]


def check_gpus_have_room(config: RunConfig, machine: Machine) -> list[Problem]:
    """Reports the GPUs of a placed configuration on which there is nothing left that JAX could take."""
    # On several nodes each picks its own.
    if not _divides(config) or config.launcher != "local":
        return []
    full = []
    for gpu in chosen_gpus(config, machine):
        free = free_bytes(gpu)
        if free is not None and free < LEAST_FREE_BYTES:
            of = f"{free / GIB:.2f} of {(gpu.memory_total_bytes or 0) / GIB:,.0f} GiB free{_held_by(gpu)}"
            full.append(f"GPU {gpu.number} ({gpu.name}) has {of}")
    if not full:
        return []
    least = f"{LEAST_FREE_BYTES / GIB:g} GiB"
    message = (
        f"{'; '.join(full)}, but JAX needs {least} to start. Choose other GPUs, end what uses them, or use "
        "platform cpu."
    )
    return [Problem("device_ids", message, also=("devices",))]


def _held_by(gpu: Gpu) -> str:
    """Says who holds a GPU's memory, as far as that is known."""
    if not gpu.processes:
        return ""
    visible = [process for process in gpu.processes if process.pid is not None]
    named = [" ".join(filter(None, (process.user, process.name, f"(pid {process.pid})"))) for process in visible]
    return f", used by {', '.join(named)}" if named else ", used by processes outside this container"


def parts_that_fit(config: RunConfig, machine: Machine, estimate: MemoryEstimate) -> int | None:
    """Returns the least `accumulate` with which a placed configuration would fit that does not; None if none."""
    if "accumulate" not in BACKENDS[config.backend].keys:
        return None
    local = local_batches(config)
    activations = estimate.activations * config.accumulate
    for parts in range(config.accumulate + 1, min(local) + 1):
        less = replace(estimate, activations=activations // parts)
        if not any(batch % parts for batch in local) and not shortages(config, machine, less):
            return parts
    return None


def on_host(config: RunConfig, estimate: MemoryEstimate) -> int:
    """Returns what all CPU devices of a node take together."""
    return estimate.total * max(devices_of_nodes(config))


def data_copies(config: RunConfig) -> int:
    """Copies of the data set in a node's memory: one per process, and one on each of JAX's CPU devices."""
    backend, devices = BACKENDS[config.backend], max(devices_of_nodes(config))
    if backend.process_per_device:
        return devices
    return 1 + devices if config.platform == "cpu" and backend.engine == "jax" else 1


def wants_streaming(config: RunConfig, data: Dataset, machine: Machine) -> bool:
    """Returns whether a placed configuration's images take too much of a device's memory to be held; a text is held."""
    if (config.platform != "cuda" and not data.mapped) or data.text_bytes:
        return False
    copies = 1 if config.platform == "cuda" else data_copies(config)
    return any(data.decoded_bytes * copies > RESIDENT_PART * free for _, free in free_memory(config, machine))


def check_data_fits(config: RunConfig, machine: Machine, data: Dataset | None = None) -> list[Problem]:
    """Reports a placed configuration whose data is larger than the free memory, and cannot be read batch by batch."""
    if not BACKENDS[config.backend].builtin:
        return []
    try:
        data = data or find_dataset(config.dataset, config.context)
    except DatasetError:
        # `check_data` reports it.
        return []
    data_bytes, copies, free = data.decoded_bytes, data_copies(config), machine.memory_available_bytes
    if free is None or data.mapped or data_bytes * copies <= free:
        return []
    in_all = f" in each of {copies} copies, {data_bytes * copies / GIB:,.2f} GiB in all" if copies > 1 else ""
    fewer = " or fewer devices" if config.devices > 1 else ""
    message = (
        f"{config.dataset} takes {data_bytes / GIB:,.2f} GiB of memory{in_all}, but {free / GIB:,.2f} GiB are free. "
        f"Use less data{fewer}, or free memory."
    )
    return [Problem("dataset", message, also=("devices",))]
