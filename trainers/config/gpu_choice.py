"""Which of a machine's GPUs are idle, and which a run gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuiapp.trainers.config.machine import Gpu
from tuiapp.trainers.config.settings import current_settings


class IdleLimits(NamedTuple):
    """Which GPU counts as idle."""

    memory_percent: int
    """Most of its memory that may be in use: the driver's own, a desktop's."""
    load_percent: int
    """Utilization that it stays below."""


def idle_limits() -> IdleLimits:
    """Returns the user's, the same for every choice of GPUs: the form's, a launch's, the queue's."""
    settings = current_settings()
    return IdleLimits(settings.idle_memory, settings.idle_load)


def is_idle(gpu: Gpu) -> bool:
    """Whether nobody seems to use a GPU; figures that the driver does not report speak for it."""
    limits = idle_limits()
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if total is not None and used is not None and used > limits.memory_percent / 100 * total:
        return False
    # For up to a second the driver reports the utilization by processes that have ended.
    return gpu.processes == () or (gpu.utilization_percent or 0) < limits.load_percent


def pick(gpus: Sequence[Gpu], count: int) -> list[Gpu]:
    """Returns the `count` GPUs that a run gets, in the machine's order; fewer if there are not as many.

    Idle ones come first, then those with the least memory in use. Of several MIG instances a run can use only one:
    CUDA shows a process no more.
    """
    if count > 1:
        gpus = [gpu for gpu in gpus if gpu.part is None]
    ranked = sorted(gpus, key=lambda gpu: (0, 0) if is_idle(gpu) else (1, gpu.memory_used_bytes or 0))
    return [gpu for gpu in gpus if gpu in ranked[:count]]


def most(gpus: Sequence[Gpu]) -> int:
    """Returns how many GPUs a run gets that does not say: all idle ones, or all if none is idle."""
    usable = [gpu for gpu in gpus if is_idle(gpu)] or gpus
    return len([gpu for gpu in usable if gpu.part is None]) or len(usable[:1])


def find(name: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Returns the GPU with that number ("2", "1:0" for a MIG instance) or UUID."""
    return next((gpu for gpu in gpus if name in (gpu.number, gpu.uuid)), None)
