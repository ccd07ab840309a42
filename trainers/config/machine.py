"""This machine's cores, memory and GPUs. GPUs are queried by NVML in a separate process.

NVML calls can hang or crash the caller, and neither the dashboard nor a launch may die with a driver: `inspect_machine`
runs `trainers.telemetry.probe` with `python -m` and a timeout. Nothing here imports a training framework.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import msgspec

from trainers.config.control_groups import memory_groups, memory_limit

GPU_PROBE_TIMEOUT_S = 10.0

LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH = 12, 18

NO_DRIVER = "no NVIDIA driver here (libnvidia-ml.so.1 not found)"


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pid: int | None = None
    """Null if the driver's pid, which is the host's, is not valid here, as in a container."""
    rank: int | None = None
    """Null: not of this run, or not known to be."""
    user: str = ""
    name: str = ""
    memory_bytes: int | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    """NVML's index: PCI bus order, which is CUDA's only under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    part: int | None = None
    """Number of a MIG instance on its GPU, in the driver's order; None for a whole GPU."""
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """Those that hold its memory; None if the driver does not report them."""

    @property
    def number(self) -> str:
        """What people call it: "1"; "1:0" for a MIG instance."""
        return str(self.index) if self.part is None else f"{self.index}:{self.part}"


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[Gpu, ...] = ()
    """Those to choose from."""
    driver: str | None = None
    problem: str = ""
    """Why there are no GPUs to use, in words; "" if there are some."""
    limit: str = ""
    """What keeps others from being used, in words: CUDA_VISIBLE_DEVICES; "" if nothing does."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cpu_cores: int
    """Cores this process may run on."""
    memory_total_bytes: int
    """Of the host, or less if a control group limits this process."""
    memory_available_bytes: int | None = None
    """What new processes may use without swapping, or being killed by a control group's limit."""
    gpus: tuple[Gpu, ...] = ()
    """Those to choose from: what CUDA_VISIBLE_DEVICES leaves, in its order; of GPUs with MIG their instances."""
    driver: str | None = None
    gpu_problem: str = ""
    """Why there are none; "" if there are some."""
    gpu_limit: str = ""
    """What keeps others from being used; "" if nothing does."""

    @property
    def max_cpu_ranks(self) -> int:
        """CPU ranks a run may have: four per core, so that small machines can rehearse larger ones."""
        return max(8, 4 * self.cpu_cores)


def nvml_words(error: Exception) -> str:
    """Describes an NVMLError for people."""
    if getattr(error, "value", None) == LIBRARY_NOT_FOUND:
        return NO_DRIVER
    if getattr(error, "value", None) == LIB_RM_VERSION_MISMATCH:
        return "the driver's library and its kernel module are of different versions: reboot, or reload the module"
    return str(error)


def inspect_machine() -> Machine:
    """Inspects this machine; takes some milliseconds, with GPUs up to a second."""
    import psutil

    report, memory = _probe_gpus(), psutil.virtual_memory()
    limit, free = memory_limit(memory_groups()) or (memory.total, memory.available)
    return Machine(
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_total_bytes=min(memory.total, limit),
        memory_available_bytes=min(memory.available, free),
        gpus=report.gpus,
        driver=report.driver,
        gpu_problem=report.problem,
        gpu_limit=report.limit,
    )


def _probe_gpus() -> GpuReport:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return GpuReport(problem=NO_DRIVER)
    command = [sys.executable, "-P", "-m", "trainers.telemetry.probe"]
    probe = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        answer, _ = probe.communicate(timeout=GPU_PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # Not waited for: a process that hangs in the driver dies only when its call returns.
        probe.kill()
        return GpuReport(problem=f"NVML did not answer within {GPU_PROBE_TIMEOUT_S:g} s")
    try:
        return msgspec.json.decode(answer, type=GpuReport)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return GpuReport(problem=f"the NVML probe died (exit code {probe.returncode})")
