"""Which of a machine's GPUs a run may have, and which of those it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainers.config.machine import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"

IDLE_MEMORY_PERCENT = 10
"""How much of its memory an idle GPU may have in use: the driver's own, a desktop's."""
IDLE_PERCENT = 10
"""Utilization below which a GPU is idle."""


def choose(wanted: str, present: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the UUIDs that a value of CUDA_VISIBLE_DEVICES names, in its order, by CUDA's rules.

    The value has indices, UUIDs or their prefixes, separated by commas; the first that matches nothing, or more than
    one, ends the list. "all" names everything. `present` has the UUID of each GPU, in PCI bus order, and those of its
    MIG instances, which are what there is to use of a GPU that has some.

    Source: https://docs.nvidia.com/cuda/cuda-programming-guide/, "CUDA environment variables".
    """
    parts = [part for some in present.values() for part in some]
    chosen: list[str] = []
    for word in [*present] if wanted == "all" else filter(None, (word.strip() for word in wanted.split(","))):
        if word.isascii() and word.isdecimal():
            found = [*present][int(word) : int(word) + 1]
        else:
            found = [uuid for uuid in (*present, *parts) if uuid.startswith(word)]
        if len(found) != 1:
            break
        chosen += [uuid for uuid in present.get(found[0]) or found if uuid not in chosen]
    return chosen


def is_idle(gpu: Gpu, memory_percent: float = IDLE_MEMORY_PERCENT, percent: float = IDLE_PERCENT) -> bool:
    """Whether nobody seems to use a GPU; figures that the driver does not report speak for it."""
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if total is not None and used is not None and used > memory_percent / 100 * total:
        return False
    # For up to a second the driver reports the utilization by processes that have ended.
    return gpu.processes == () or (gpu.utilization_percent or 0) < percent


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
