"""Which of a machine's GPUs are idle, and which a run gets: one rule for form, launch, queue and `tuiapp devices`.

A GPU is *in use* if a live run of anybody's has it, or if more of its memory is in use, or it is busier, than the
user's limits allow. Of the others one is *shared* if somebody's processes hold memory there, and else *idle*: those
that draw a desktop do not count, nor does the system's memory where a GPU has no other. What the driver does not report
speaks for a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from tuiapp.trainers.config.machine import Gpu
from tuiapp.trainers.config.settings import current_settings


class Use(IntEnum):
    """What others leave of a GPU; the less, the higher."""

    IDLE = 0
    SHARED = 1
    IN_USE = 2

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


def use_of(gpu: Gpu) -> Use:
    """Returns what others leave of a GPU, by the user's limits."""
    settings = current_settings()
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if gpu.has_system_memory:
        total = None
    full = total is not None and used is not None and used > settings.idle_memory / 100 * total
    if gpu.leases or full or (gpu.utilization_percent or 0) >= max(1, settings.idle_load):
        return Use.IN_USE
    return Use.SHARED if any(not process.draws for process in gpu.processes or ()) else Use.IDLE


def rank(gpu: Gpu) -> tuple[Use, int, int, int]:
    """Sorts GPUs, the one that a run gets first to the front; of equal ones the first of the machine's order."""
    used = round(100 * (gpu.memory_used_bytes or 0) / (gpu.memory_total_bytes or 1))
    return use_of(gpu), len(gpu.leases), used, gpu.utilization_percent or 0


def pick(gpus: Sequence[Gpu], count: int) -> list[Gpu]:
    """Returns the `count` GPUs that a run gets, in the machine's order; fewer if there are not as many.

    Of several MIG instances a run can use only one: CUDA shows a process no more.
    """
    if count > 1:
        gpus = [gpu for gpu in gpus if gpu.part is None]
    chosen = sorted(gpus, key=rank)[:count]
    return [gpu for gpu in gpus if gpu in chosen]


def most(gpus: Sequence[Gpu]) -> int:
    """Returns how many GPUs a run gets that does not say: all idle ones, or else all shared ones, or else all."""
    best = min(map(use_of, gpus), default=Use.IDLE)
    usable = [gpu for gpu in gpus if use_of(gpu) == best]
    return len([gpu for gpu in usable if gpu.part is None]) or len(usable[:1])


def find(name: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Returns the GPU with that number ("2", "1:0" for a MIG instance) or UUID."""
    return next((gpu for gpu in gpus if name in (gpu.number, gpu.uuid)), None)
