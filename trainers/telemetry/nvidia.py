"""NVIDIA's GPUs through NVML, by the pynvml module of nvidia-ml-py."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuiapp.trainers.config.machine import nvml_words
from tuiapp.trainers.config.visible_gpus import choose
from tuiapp.trainers.contract.events import place_name
from tuiapp.trainers.telemetry.nvidia_gpu import NvmlGpu
from tuiapp.trainers.telemetry.owners import Owners
from tuiapp.trainers.telemetry.source import DeadGpu, EnergyCount, SourceError


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
            looked_up = [self._find(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            raise SourceError(nvml_words(error)) from error
        # A control group's rules, as Slurm's, may hide some: CUDA does not count those.
        present = [one for one in looked_up if one is not None]
        uuids = [one.uuid for one in present]
        words = [word.strip() for word in self._wanted.split(",")]
        missing = [word for word in words if word.startswith("GPU-") and not any(u.startswith(word) for u in uuids)]
        parts = {one.uuid: _parts(pynvml, one.handle) for one in present}
        chosen = {*choose(",".join(word for word in words if word not in missing), parts)}
        return [
            *(self._open(pynvml, one) for one in present if chosen & {one.uuid, *parts[one.uuid]}),
            # A lost GPU does not even report its UUID; its problem may be reported by its place.
            *(DeadGpu(*self._explain(present, word, words.index(word))) for word in missing),
        ]

    def _find(self, nvml: Any, index: int) -> _Found | None:
        """A GPU; None if this process may not use it. One that does not answer has no handle, its place, and why."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            return _Found(index, handle, nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NO_PERMISSION:
                return None
            return _Found(index, None, place_name(index), str(error))

    def _open(self, nvml: Any, one: _Found) -> NvmlGpu | DeadGpu:
        """Opens one GPU; a failing one does not keep the others from being sampled."""
        if one.handle is None:
            return DeadGpu(one.index, one.uuid, one.problem)
        try:
            return NvmlGpu(nvml, one.handle, one.index, one.uuid, self._owners, self._energy)
        except nvml.NVMLError as error:
            return DeadGpu(one.index, one.uuid, str(error))

    def _explain(self, present: list[_Found], uuid: str, place: int) -> tuple[int, str, str]:
        silent = [one for one in present if one.handle is None]
        return (silent[0].index, uuid, silent[0].problem) if len(silent) == 1 else (place, uuid, "it is missing")


@dataclass(frozen=True, slots=True)
class _Found:
    index: int
    handle: Any
    uuid: str
    problem: str = ""


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
