"""How much memory training takes on one device, roughly, before it is tried.

Counted is what follows from the configuration. What a framework takes for itself (CUDA's context, cuDNN's workspaces,
compiled programs, about 0.3 to 1 GiB a process) is not: it depends on the machine, and is the same for every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from trainers.config.catalog import OPTIMIZER_SLOTS, model_size
from trainers.config.datasets import find_dataset
from trainers.config.machine import Machine
from trainers.config.run_config import RunConfig

FLOAT32_BYTES = 4
KEEPS_FLOAT_IMAGES = ("torch-ddp", "torch-dp", "keras-torch")
"""Backends that keep the images as float32; the others keep them as they lie in the file, bytes as a rule."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one device."""

    parameters: int
    gradients: int
    optimizer: int
    """What it keeps between steps: momentum, averages of the gradients."""
    activations: int
    """What the forward pass keeps for the backward pass, and their gradients."""
    data: int
    """The data set, which lies on the device."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.data


@dataclass(frozen=True, slots=True)
class Shortage:
    """A place that has less free memory than is wanted of it."""

    where: str
    """"GPU 1", or "this machine"."""
    wanted_bytes: int
    free_bytes: int


def estimate_memory(config: RunConfig) -> MemoryEstimate:
    """What a configuration whose devices are exact takes on each of them.

    Raises:
        DatasetError: the data set's file is missing, or no data set.
    """
    size, data = model_size(config.model, config.dataset), find_dataset(config.dataset)
    weights = FLOAT32_BYTES * size.parameters
    # Under autocast the weights stay float32, what the layers give is half as long.
    number = FLOAT32_BYTES // 2 if config.precision == "bfloat16" else FLOAT32_BYTES
    examples = -(-config.global_batch_size // max(1, config.devices))
    pixel = FLOAT32_BYTES if config.backend in KEEPS_FLOAT_IMAGES else 1
    return MemoryEstimate(
        parameters=weights,
        gradients=weights,
        optimizer=weights * slots(config),
        activations=2 * number * size.activations * examples,
        data=(data.train_examples + data.test_examples) * prod(data.input_shape) * pixel,
    )


def slots(config: RunConfig) -> int:
    """Arrays of the parameters' size that the optimizer keeps."""
    return 0 if config.optimizer == "sgd" and not config.momentum else OPTIMIZER_SLOTS[config.optimizer]


def free_memory(config: RunConfig, machine: Machine) -> list[tuple[str, int]]:
    """What is free for a configuration whose devices are exact.

    Returns:
        Each GPU, or the host, with its bytes; one that does not tell is left out.
    """
    if config.platform != "cuda":
        free = machine.memory_available_bytes
        return [] if free is None else [("this machine", free)]
    return [
        (f"GPU {gpu.index}", gpu.memory_total_bytes - gpu.memory_used_bytes)
        for gpu in machine.gpus
        if gpu.uuid in config.device_ids and gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None
    ]


def shortages(config: RunConfig, machine: Machine, estimate: MemoryEstimate) -> Sequence[Shortage]:
    """Where less is free than is wanted: each GPU must hold one device's share, the host all of them."""
    wanted = estimate.total if config.platform == "cuda" else on_host(config, estimate)
    return [Shortage(where, wanted, free) for where, free in free_memory(config, machine) if free < wanted]


def on_host(config: RunConfig, estimate: MemoryEstimate) -> int:
    """What all CPU devices of a configuration take together."""
    return estimate.total * config.devices
