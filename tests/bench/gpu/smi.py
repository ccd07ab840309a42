"""The GPUs as `nvidia-smi` and NVML tell of them: what the program's own figures are held against."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

QUESTIONS = (
    "index", "uuid", "name", "driver_version", "memory.total", "memory.reserved", "memory.used", "utilization.gpu",
    "power.draw", "enforced.power.limit", "temperature.gpu",
)  # fmt: skip
"""Of `nvidia-smi --help-query-gpu`. `memory.used` has been without the driver's own, `memory.reserved`, since 510."""

TIMEOUT_S = 30.0
"""Without persistence mode a driver starts for each question, which takes seconds."""

MIB = 1 << 20


def ask() -> list[dict[str, str]]:
    """A dictionary a GPU, question → answer as `nvidia-smi` writes it; empty without it, or if it fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={','.join(QUESTIONS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return []
    return parse(done.stdout)


def parse(text: str) -> list[dict[str, str]]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [dict(zip(QUESTIONS, row, strict=True)) for row in rows if len(row) == len(QUESTIONS)]


def number(answer: str) -> float | None:
    """None for what the device does not tell: [N/A], [Not Supported]."""
    try:
        return float(answer)
    except ValueError:
        return None


@dataclass(frozen=True)
class Nvml:
    """One GPU, asked directly; of a check's own process, whose time is limited: a call may hang."""

    uuid: str

    def used_bytes(self) -> int:
        nvml, handle = self._open()
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)

    def total_bytes(self) -> int:
        nvml, handle = self._open()
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)

    def energy_j(self) -> float | None:
        """Since the driver was loaded; None if the GPU has no counter."""
        nvml, handle = self._open()
        with suppress(nvml.NVMLError):
            return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
        return None

    def pids(self) -> set[int]:
        """Of processes that compute on it; in a container there may be none, or those of the host."""
        nvml, handle = self._open()
        with suppress(nvml.NVMLError):
            return {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        return set()

    def _open(self) -> tuple[Any, Any]:
        import pynvml

        # Counted by the library: the driver is loaded once.
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return pynvml, next(handle for handle in handles if pynvml.nvmlDeviceGetUUID(handle) == self.uuid)
