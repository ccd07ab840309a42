"""`python -m tuiapp.trainers.telemetry.probe`: this machine's GPUs as JSON, once, for a launch.

With `--again`, once for each line of its input.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pynvml

from tuiapp.trainers.config.machine import VISIBLE, Gpu, GpuReport, choose
from tuiapp.trainers.contract.gpu_leases import with_leases
from tuiapp.trainers.telemetry.host import Owners
from tuiapp.trainers.telemetry.nvidia import NvmlGpu, NvmlSource
from tuiapp.trainers.telemetry.source import DeadGpu, EnergyCount, SourceError

SHOWN = 40
"""Most characters of the user's CUDA_VISIBLE_DEVICES in a message: it may be a list of UUIDs."""


LOOK_S, LOOKS = 0.2, 5
"""Between readings of the utilization, and how many: a single one may hit the pause between two steps."""

REOPEN_S = 60.0
"""How long handles are used again: GPUs may come and go, and be divided."""


def read_gpus(opened: Sequence[NvmlGpu | DeadGpu] = ()) -> GpuReport:
    """Queries NVML for the GPUs that CUDA_VISIBLE_DEVICES leaves, in this process; `opened` were found before."""
    source = open_source()
    usable: dict[str, Gpu] = {}
    whole: dict[str, NvmlGpu] = {}
    parts: dict[str, list[str]] = {}
    problem, driver = f"NVML: {source.no_gpus}", None
    try:
        for gpu in opened or source.open():
            parts[gpu.uuid] = []
            try:
                found = gpu.describe(time.monotonic())
            except SourceError as error:
                # A lost GPU does not keep runs from the others.
                problem = f"NVML: {error}"
                continue
            if not found:
                problem = f"GPU {gpu.index} is in MIG mode, and has no instance"
            usable |= {one.uuid: one for one in found}
            if isinstance(gpu, NvmlGpu) and gpu.uuid in usable:
                whole[gpu.uuid] = gpu
            parts[gpu.uuid] = [one.uuid for one in found if one.part is not None]
    except SourceError as error:
        problem = f"NVML: {error}"
    with contextlib.suppress(pynvml.NVMLError):
        driver = pynvml.nvmlSystemGetDriverVersion()
    loads = _loads(whole)
    # For up to a second the driver reports the utilization by processes that have ended.
    loads |= _loads({one: gpu for one, gpu in whole.items() if loads.get(one) and not usable[one].processes})
    usable |= {one: msgspec.structs.replace(usable[one], utilization_percent=load) for one, load in loads.items()}
    wanted, limit = os.environ.get(VISIBLE), ""
    gpus = tuple(usable.values())
    if wanted is not None:
        order = _cuda_order() if _order_matters(wanted, gpus) else []
        counted = sorted(parts, key=lambda one: order.index(one) if one in order else len(order))
        chosen = choose(wanted, {one: parts[one] for one in counted})
        gpus = tuple(usable[one] for one in chosen if one in usable)
        given = f'{VISIBLE}="{wanted[:SHOWN]}{"…" if len(wanted) > SHOWN else ""}"'
        if usable and not gpus:
            problem = f"{given} hides {'the GPU' if len(usable) == 1 else f'all {len(usable)} GPUs'} of this machine"
        elif len(gpus) < len(usable):
            limit = f"{given} leaves {len(gpus)} of {len(usable)} GPUs"
    return GpuReport(gpus=with_leases(gpus), driver=driver, problem="" if gpus else problem, limit=limit)


def _loads(gpus: Mapping[str, NvmlGpu]) -> dict[str, int]:
    """The highest utilization of each GPU within a second, in percent; without those that do not report it."""
    found: dict[str, int] = {}
    for _ in range(LOOKS if gpus else 0):
        time.sleep(LOOK_S)
        for name, gpu in gpus.items():
            with contextlib.suppress(SourceError):
                if (load := gpu.load(time.monotonic())) is not None:
                    found[name] = max(load, found.get(name, 0))
    return found


def open_source() -> NvmlSource:
    """Returns the driver's library, to be opened."""
    return NvmlSource("all", Owners({}), EnergyCount({}))


def answer_again() -> None:
    """Writes a report for each line of the input; to open the library takes longer than to ask it."""
    opened: Sequence[NvmlGpu | DeadGpu] = ()
    opened_at = 0.0
    for _ in sys.stdin:
        if not opened or time.monotonic() - opened_at > REOPEN_S:
            with contextlib.suppress(SourceError):
                opened, opened_at = open_source().open(), time.monotonic()
        sys.stdout.buffer.write(msgspec.json.encode(read_gpus(opened)) + b"\n")
        sys.stdout.buffer.flush()


def _order_matters(wanted: str, gpus: Iterable[Gpu]) -> bool:
    """Whether indices may mean other GPUs than NVML's: CUDA counts the fastest first, unless told otherwise."""
    by_index = any(word.strip().isdecimal() for word in wanted.split(","))
    return by_index and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({gpu.name for gpu in gpus}) > 1


def _cuda_order() -> list[str]:
    """The UUIDs of all GPUs as CUDA counts them; none if its library does not answer. Uses no memory of a GPU.

    Source: https://docs.nvidia.com/cuda/cuda-driver-api/, `cuDeviceGetUuid_v2`.
    """
    # Read by `cuInit`.
    os.environ.pop(VISIBLE, None)
    found, count, device, name = [], ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    for number in range(count.value):
        if cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuDeviceGetUuid_v2(name, device):
            return []
        found.append(f"GPU-{uuid.UUID(bytes=name.raw)}")
    return found


if __name__ == "__main__":
    if "--again" in sys.argv:
        answer_again()
    else:
        sys.stdout.buffer.write(msgspec.json.encode(read_gpus()))
