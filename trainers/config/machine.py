"""This machine's cores, memory and GPUs. GPUs are queried by NVML in a separate process.

NVML calls can hang or crash the caller, and neither the dashboard nor a launch may die with a driver: `inspect_machine`
runs this module with `python -m` and a timeout. Nothing here imports a training framework.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys

import msgspec

from trainers.config.control_groups import memory_groups, memory_limit

GPU_PROBE_TIMEOUT_S = 10.0

HOST_PID_NAMESPACE = 0xEFFFFFFC
"""Its number in every Linux kernel (PROC_PID_INIT_INO)."""
HOST_PIDS_VARIABLE = "TUIAPP_TELEMETRY_HOST_PIDS"
"""Environment variable, 1 or 0, that overrides whether the driver's pids are taken for valid here."""

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
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """Those that hold its memory; None if the driver does not report them."""


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    problem: str = ""
    """Why there are no GPUs to use, in words; "" if there are some."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cpu_cores: int
    """Cores this process may run on."""
    memory_total_bytes: int
    """Of the host, or less if a control group limits this process."""
    memory_available_bytes: int | None = None
    """What new processes may use without swapping, or being killed by a control group's limit."""
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    gpu_problem: str = ""

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
    )


def _probe_gpus() -> GpuReport:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return GpuReport(problem=NO_DRIVER)
    command = [sys.executable, "-P", "-m", "trainers.config.machine"]
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
    """Queries NVML for the GPUs, in this process."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuReport(problem=f"NVML: {nvml_words(error)}")
    gpus, problem = [], "NVML finds no GPU"
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(_read_gpu(index))
            except pynvml.NVMLError as error:
                # A lost GPU does not keep runs from the others.
                problem = f"NVML: {error}"
        driver = pynvml.nvmlSystemGetDriverVersion()
        return GpuReport(gpus=tuple(gpus), driver=driver, problem="" if gpus else problem)
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
    return Gpu(index=index, uuid=uuid, name=name, processes=_read_processes(handle), **known)


def _read_processes(handle: object) -> tuple[GpuProcess, ...] | None:
    import pynvml

    found: dict[int, int | None] = {}
    reported = False
    for kind in ("Compute", "Graphics"):
        # By version: without one pynvml does not raise an NVMLError if the driver is older than it.
        for version in (3, 2):
            with contextlib.suppress(pynvml.NVMLError):
                for process in getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v{version}")(handle):
                    found[process.pid] = process.usedGpuMemory
                reported = True
                break
    return tuple(describe_process(pid, held) for pid, held in found.items()) if reported else None


def describe_process(pid: int, memory_bytes: int | None) -> GpuProcess:
    """A process that a driver lists."""
    import psutil

    # In a PID namespace the driver still reports the host's pids, which mean others here, or nobody.
    valid = os.environ.get(HOST_PIDS_VARIABLE) != "0"
    if not os.environ.get(HOST_PIDS_VARIABLE):
        valid = os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE
    if valid:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return GpuProcess(pid=pid, user=process.username(), name=process.name(), memory_bytes=memory_bytes)
    return GpuProcess(memory_bytes=memory_bytes)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read_gpus()))
