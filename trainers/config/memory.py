"""Estimates the memory that training takes on one device.

Counts what follows from the configuration. What a framework takes for itself (CUDA's context, cuDNN's workspaces,
compiled programs, about 0.3 to 1 GiB per process) is not counted: it depends on the machine, and is the same for every
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainers.config.catalog import BACKENDS, MODELS, OPTIMIZER_SLOTS, model_size
from trainers.config.dataset_error import DatasetError
from trainers.config.datasets import EXAMINED, Dataset, find_dataset
from trainers.config.machine import Machine
from trainers.config.options import Problem
from trainers.config.run_config import RunConfig

FLOAT32_BYTES = 4
GIB = 1 << 30

RESIDENT_PART = 0.5
"""Share of a device's free memory that a data set may take: the rest is the model's."""


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

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.data


@dataclass(frozen=True, slots=True)
class Shortage:
    where: str
    wanted_bytes: int
    free_bytes: int


def can_estimate(config: RunConfig) -> bool:
    """Whether the memory can be estimated: what models and data of the user's own take may not be known."""
    known = config.model in MODELS and not config.dataset.startswith(EXAMINED)
    return known and BACKENDS[config.backend].builtin


def estimate_memory(config: RunConfig) -> MemoryEstimate:
    """What a placed configuration of a built-in trainer takes on each device.

    Raises DatasetError if the data file is missing or invalid.
    """
    size, data = model_size(config.model, config.dataset), find_dataset(config.dataset)
    weights = FLOAT32_BYTES * size.parameters
    # Under autocast the weights stay float32, the layers' outputs take half the space.
    number = FLOAT32_BYTES // 2 if config.precision == "bfloat16" else FLOAT32_BYTES
    examples = -(-config.global_batch_size // max(1, config.devices))
    return MemoryEstimate(
        parameters=weights,
        gradients=weights,
        optimizer=weights * slots(config),
        activations=2 * number * size.activations * examples,
        data=data.decoded_bytes,
    )


def slots(config: RunConfig) -> int:
    """Arrays of the parameters' size that the optimizer keeps."""
    return 0 if config.optimizer == "sgd" and not config.momentum else OPTIMIZER_SLOTS[config.optimizer]


def free_memory(config: RunConfig, machine: Machine) -> list[tuple[str, int]]:
    """Free bytes of each GPU, or of the host, for a placed configuration; unknown ones are left out."""
    if config.platform != "cuda":
        free = machine.memory_available_bytes
        return [] if free is None else [("this machine", free)]
    # On several nodes each picks its own: the first.
    chosen = config.device_ids or [gpu.uuid for gpu in machine.gpus[: config.devices // config.nodes]]
    return [
        (f"GPU {gpu.index}", gpu.memory_total_bytes - gpu.memory_used_bytes)
        for gpu in machine.gpus
        if gpu.uuid in chosen and gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None
    ]


def shortages(config: RunConfig, machine: Machine, estimate: MemoryEstimate) -> Sequence[Shortage]:
    """Places with too little free memory: each GPU must hold one device's share, the host all of them."""
    wanted = estimate.total if config.platform == "cuda" else on_host(config, estimate)
    return [Shortage(where, wanted, free) for where, free in free_memory(config, machine) if free < wanted]


def on_host(config: RunConfig, estimate: MemoryEstimate) -> int:
    """What all CPU devices of a node take together."""
    return estimate.total * (config.devices // config.nodes)


def data_copies(config: RunConfig) -> int:
    """Copies of the data set in a node's memory: one per process, and one on each of JAX's CPU devices."""
    backend, devices = BACKENDS[config.backend], config.devices // config.nodes
    if backend.process_per_device:
        return devices
    return 1 + devices if config.platform == "cpu" and "jax" in backend.packages else 1


def wants_streaming(config: RunConfig, data: Dataset, machine: Machine) -> bool:
    """Whether a placed configuration's images take too much of a device's memory to be held there."""
    if config.platform != "cuda" and not data.mapped:
        return False
    copies = 1 if config.platform == "cuda" else data_copies(config)
    return any(data.decoded_bytes * copies > RESIDENT_PART * free for _, free in free_memory(config, machine))


def check_data_fits(config: RunConfig, machine: Machine, data: Dataset | None = None) -> list[Problem]:
    """Reports a placed configuration whose data is larger than the free memory, and cannot be read batch by batch."""
    if not BACKENDS[config.backend].builtin:
        return []
    try:
        data = data or find_dataset(config.dataset)
    except DatasetError:
        # `check_data` reports it.
        return []
    each, copies, free = data.decoded_bytes, data_copies(config), machine.memory_available_bytes
    if free is None or data.mapped or each * copies <= free:
        return []
    in_all = f" in each of {copies} copies, {each * copies / GIB:,.2f} GiB in all" if copies > 1 else ""
    fewer = " or fewer devices" if config.devices > 1 else ""
    message = (
        f"{config.dataset} takes {each / GIB:,.2f} GiB of memory{in_all}, but {free / GIB:,.2f} GiB are free. "
        f"Use less data{fewer}, or free memory."
    )
    return [Problem("dataset", message, also=("devices",))]
