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
"""Seconds between readings of the utilization, and how many: a single one may hit the pause between two steps."""

REOPEN_S = 60.0
"""How long handles are used again: GPUs may come and go, and be divided."""


def read_gpus(opened: Sequence[NvmlGpu | DeadGpu] = ()) -> GpuReport:
    """Queries NVML for the GPUs that CUDA_VISIBLE_DEVICES leaves, in this process; `opened` were found before."""
    source = open_source()
    usable: dict[str, Gpu] = {}
    undivided: dict[str, NvmlGpu] = {}
    parts: dict[str, list[str]] = {}
    problem, driver = f"NVML: {source.no_gpus}", None
    try:
        for gpu in opened or source.open():
            parts[gpu.uuid] = []
            try:
                described = gpu.describe(time.monotonic())
            except SourceError as error:
                # A lost GPU does not keep runs from the others.
                problem = f"NVML: {error}"
                continue
            if not described:
                problem = f"GPU {gpu.index} is in MIG mode, and has no instance"
            usable |= {device.uuid: device for device in described}
            if isinstance(gpu, NvmlGpu) and gpu.uuid in usable:
                undivided[gpu.uuid] = gpu
            parts[gpu.uuid] = [device.uuid for device in described if device.part is not None]
    except SourceError as error:
        problem = f"NVML: {error}"
    with contextlib.suppress(pynvml.NVMLError):
        driver = pynvml.nvmlSystemGetDriverVersion()
    loads = _loads(undivided)
    # For up to a second the driver reports the utilization by processes that have ended.
    loads |= _loads(
        {gpu_uuid: gpu for gpu_uuid, gpu in undivided.items() if loads.get(gpu_uuid) and not usable[gpu_uuid].processes}
    )
    usable |= {
        gpu_uuid: msgspec.structs.replace(usable[gpu_uuid], utilization_percent=load)
        for gpu_uuid, load in loads.items()
    }
    wanted, limit = os.environ.get(VISIBLE), ""
    gpus = tuple(usable.values())
    if wanted is not None:
        order = _cuda_order() if _order_matters(wanted, gpus) else []
        counted = sorted(parts, key=lambda gpu_uuid: order.index(gpu_uuid) if gpu_uuid in order else len(order))
        chosen = choose(wanted, {gpu_uuid: parts[gpu_uuid] for gpu_uuid in counted})
        gpus = tuple(usable[gpu_uuid] for gpu_uuid in chosen if gpu_uuid in usable)
        setting = f'{VISIBLE}="{wanted[:SHOWN]}{"…" if len(wanted) > SHOWN else ""}"'
        if usable and not gpus:
            problem = f"{setting} hides {'the GPU' if len(usable) == 1 else f'all {len(usable)} GPUs'} of this machine"
        elif len(gpus) < len(usable):
            limit = f"{setting} leaves {len(gpus)} of {len(usable)} GPUs"
    return GpuReport(gpus=with_leases(gpus), driver=driver, problem="" if gpus else problem, limit=limit)


def _loads(gpus: Mapping[str, NvmlGpu]) -> dict[str, int]:
    """Returns the highest utilization of each GPU within a second, in percent, as far as they report it."""
    highest: dict[str, int] = {}
    for _ in range(LOOKS if gpus else 0):
        time.sleep(LOOK_S)
        for name, gpu in gpus.items():
            with contextlib.suppress(SourceError):
                if (load := gpu.load(time.monotonic())) is not None:
                    highest[name] = max(load, highest.get(name, 0))
    return highest


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
    """Returns the UUIDs of all GPUs as CUDA counts them; none if its library is silent. Uses no memory of a GPU.

    Source: https://docs.nvidia.com/cuda/cuda-driver-api/, `cuDeviceGetUuid_v2`.
    """
    # Read by `cuInit`.
    os.environ.pop(VISIBLE, None)
    uuids, count, device, name = [], ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    for number in range(count.value):
        if cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuDeviceGetUuid_v2(name, device):
            return []
        uuids.append(f"GPU-{uuid.UUID(bytes=name.raw)}")
    return uuids


if __name__ == "__main__":
    if "--again" in sys.argv:
        answer_again()
    else:
        sys.stdout.buffer.write(msgspec.json.encode(read_gpus()))
