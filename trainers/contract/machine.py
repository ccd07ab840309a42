"""What this machine has: cores, memory, GPUs. GPUs are asked in a process of their own, by NVML.

NVML calls can hang or crash the caller, and neither the dashboard nor a launch may go down with a driver:
`inspect_machine` runs this module with `python -m` and a timeout. Nothing here imports a training framework.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys

import msgspec

GPU_PROBE_TIMEOUT_S = 10.0


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML sees it."""

    index: int
    """NVML's index: PCI bus order, which is CUDA's only under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe found."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    problem: str = ""
    """Why there are no GPUs to use, in words; "" when there are some."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The devices a run can be placed on."""

    cpu_cores: int
    """Cores this process may run on."""
    memory_total_bytes: int
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    gpu_problem: str = ""

    @property
    def max_cpu_ranks(self) -> int:
        """CPU ranks a run may have: four to a core, so that small machines can rehearse larger ones."""
        return max(8, 4 * self.cpu_cores)


def inspect_machine() -> Machine:
    """Look at this machine; takes some milliseconds, with GPUs up to a second."""
    import psutil

    report = _probe_gpus()
    return Machine(
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_total_bytes=psutil.virtual_memory().total,
        gpus=report.gpus,
        driver=report.driver,
        gpu_problem=report.problem,
    )


def _probe_gpus() -> GpuReport:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return GpuReport(problem="no NVIDIA driver here (libnvidia-ml.so.1 not found)")
    command = [sys.executable, "-P", "-m", "trainers.contract.machine"]
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


def read_gpus() -> GpuReport:
    """Ask NVML for the GPUs, in this process."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuReport(problem=f"NVML: {error}")
    try:
        gpus = tuple(_read_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
        driver = pynvml.nvmlSystemGetDriverVersion()
        return GpuReport(gpus=gpus, driver=driver, problem="" if gpus else "NVML finds no GPU")
    except pynvml.NVMLError as error:
        return GpuReport(problem=f"NVML: {error}")
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_gpu(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    known: dict[str, int] = {}
    with contextlib.suppress(pynvml.NVMLError):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        known |= {"memory_total_bytes": memory.total, "memory_used_bytes": memory.used}
    with contextlib.suppress(pynvml.NVMLError):
        known["utilization_percent"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    return Gpu(index=index, uuid=uuid, name=name, **known)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read_gpus()))
