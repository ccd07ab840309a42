"""NVIDIA's GPUs through NVML, by the pynvml module of nvidia-ml-py."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from trainers.config.machine import nvml_words
from trainers.contract.events import place_name
from trainers.telemetry.energy import EnergyCount
from trainers.telemetry.nvidia_gpu import NvmlGpu
from trainers.telemetry.owners import Owners
from trainers.telemetry.source import DeadGpu, SourceError


class NvmlSource:
    """NVML, and the GPUs to sample: `gpus` as in CUDA_VISIBLE_DEVICES, or "all"."""

    name = "NVML"

    def __init__(self, gpus: str, owners: Owners, energy: EnergyCount) -> None:
        self._wanted, self._owners, self._energy = gpus, owners, energy
        self.no_gpus = "it finds no GPU" if gpus == "all" else "it finds none of the run's GPUs"

    def open(self) -> Sequence[NvmlGpu | DeadGpu]:
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            # An earlier start knows nothing of a driver reloaded meanwhile.
            pynvml.nvmlShutdown()
        try:
            pynvml.nvmlInit()
            present = [self._look_up(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            raise SourceError(nvml_words(error)) from error
        uuids = [uuid for _, uuid, _ in present]
        words = [word.strip() for word in self._wanted.split(",")]
        missing = [word for word in words if word.startswith("GPU-") and not any(u.startswith(word) for u in uuids)]
        parts = {part: uuid for handle, uuid, _ in present for part in _parts(pynvml, handle)}
        chosen = choose(",".join(word for word in words if word not in missing), uuids, parts)
        return [
            *(self._look_at(pynvml, index, *one) for index, one in enumerate(present) if one[1] in chosen),
            # A lost GPU does not even report its UUID; its problem may be reported by its place.
            *(DeadGpu(*self._explain(present, word, words.index(word))) for word in missing),
        ]

    def _look_up(self, nvml: Any, index: int) -> tuple[Any, str, str]:
        """Handle and UUID of a GPU; for one that has none, its place, and why."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            return handle, nvml.nvmlDeviceGetUUID(handle), ""
        except nvml.NVMLError as error:
            return None, place_name(index), str(error)

    def _look_at(self, nvml: Any, index: int, handle: Any, uuid: str, problem: str) -> NvmlGpu | DeadGpu:
        """Opens one GPU; a failing one does not keep the others from being sampled."""
        if handle is None:
            return DeadGpu(index, uuid, problem)
        try:
            return NvmlGpu(nvml, handle, index, uuid, self._owners, self._energy)
        except nvml.NVMLError as error:
            return DeadGpu(index, uuid, str(error))

    def _explain(self, present: list[tuple[Any, str, str]], uuid: str, place: int) -> tuple[int, str, str]:
        silent = [(index, problem) for index, (handle, _, problem) in enumerate(present) if handle is None]
        index, problem = silent[0] if len(silent) == 1 else (place, "it is missing")
        return index, uuid, problem


def choose(wanted: str, present: Sequence[str], parts: dict[str, str]) -> list[str]:
    """The GPUs of `present`, in PCI bus order, that a value of CUDA_VISIBLE_DEVICES names, by CUDA's rules.

    That is "all", or indices, UUIDs or their prefixes, UUIDs of MIG instances (`parts`: to their GPU), separated by
    commas; the first that matches nothing ends the list.
    """
    if wanted == "all":
        return list(present)
    chosen: list[str] = []
    for word in filter(None, (word.strip() for word in wanted.split(","))):
        if word.isascii() and word.isdecimal():
            found = present[int(word) : int(word) + 1]
        elif word.startswith("MIG-"):
            found = [whole for part, whole in parts.items() if part.startswith(word)]
        else:
            found = [uuid for uuid in present if uuid.startswith(word)]
        if len(found) != 1:
            break
        chosen += [uuid for uuid in found if uuid not in chosen]
    return chosen


def _parts(nvml: Any, handle: Any) -> list[str]:
    if handle is None:
        return []
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return []
        return [nvml.nvmlDeviceGetUUID(part) for part in mig_handles(nvml, handle)]
    except nvml.NVMLError:
        return []


def mig_handles(nvml: Any, handle: Any) -> list[Any]:
    """Handles of a GPU's MIG instances; raises NVMLError if it does not report them."""
    handles = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            handles.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
        except nvml.NVMLError_NotFound:
            continue
    return handles
