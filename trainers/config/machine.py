"""What this machine has: cores, memory, addresses and GPUs, and which builds for CUDA its GPUs and driver suit.

GPUs are queried by NVML in a separate process: a driver that hangs keeps nothing else from being known.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

GPU_PROBE_TIMEOUT_S = 60.0
"""A driver that starts, without persistence mode and with many GPUs, takes a quarter of it."""
SLOW_PROBE_S = 3.0
"""After which it is said that the driver is waited for."""

LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH = 12, 18

NO_DRIVER = "no NVIDIA driver here"
NOT_FOUND = f"{NO_DRIVER} (libnvidia-ml.so.1 not found)"
NO_LIBRARY = (
    "there are NVIDIA GPUs, but libnvidia-ml.so.1 is not found; a container gets it with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
)
DRIVER_FILES = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia/version"))


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pid: int | None = None
    """Null if the driver's pid, which is the host's, is not valid here, as in a container."""
    rank: int | None = None
    """Null: not of this run, or not known to be."""
    user: str = ""
    name: str = ""
    memory_bytes: int | None = None
    draws: bool = False
    """Whether the process is listed for graphics alone, as a desktop is."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A live run of somebody's that has a GPU."""

    gpu: str
    """UUID."""
    run: str
    user: str
    since: float
    """Unix time."""

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.gpu}.{self.run}"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    """NVML's index: PCI bus order, which is CUDA's only under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    part: int | None = None
    """Number of a MIG instance on its GPU, in the driver's order; None for a whole GPU."""
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    has_system_memory: bool = False
    """Whether the GPU has no memory of its own, as GB10 and Jetson: both figures above are the system's."""
    utilization_percent: int | None = None
    """The highest of a second."""
    processes: tuple[GpuProcess, ...] | None = None
    """Processes that hold its memory; None if the driver does not report them."""
    leases: tuple[Lease, ...] = ()
    capability: tuple[int, int] | None = None
    """Compute capability: (9, 0) of an H100."""

    @property
    def number(self) -> str:
        """What people call it: "1"; "1:0" for a MIG instance."""
        return str(self.index) if self.part is None else f"{self.index}:{self.part}"


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU is connected by, as its driver says: NVLink where it has any, or else PCIe."""

    uuid: str
    index: int
    name: str
    kind: str = ""
    """"NVLink ×18", "PCIe 5 ×16"; "" if the driver does not say."""
    bytes_per_s: float | None = None
    """In each direction, over all links together."""


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[Gpu, ...] = ()
    """GPUs to choose from."""
    driver: str | None = None
    problem: str = ""
    """Why there are no GPUs to use, in words; "" if there are some."""
    limit: str = ""
    """What keeps others from being used, in words: CUDA_VISIBLE_DEVICES; "" if nothing does."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cpu_cores: int
    """Cores this process may run on."""
    memory_total_bytes: int
    """Bytes of the host's memory, or less if a control group limits this process."""
    memory_available_bytes: int | None = None
    """What new processes may use without swapping, or being killed by a control group's limit."""
    gpus: tuple[Gpu, ...] = ()
    """GPUs to choose from: what CUDA_VISIBLE_DEVICES leaves, in its order; of GPUs with MIG their instances."""
    driver: str | None = None
    gpu_problem: str = ""
    """Why there are none; "" if there are some."""
    gpu_limit: str = ""
    """What keeps others from being used; "" if nothing does."""

    @property
    def gpu_trouble(self) -> str:
        """Why a machine with NVIDIA's driver has no GPU to use; "" if it has some, or no driver."""
        return "" if self.gpus or self.gpu_problem.startswith(NO_DRIVER) else self.gpu_problem

    @property
    def max_cpu_ranks(self) -> int:
        """CPU ranks a run may have: four per core, so that small machines can rehearse larger ones."""
        return max(8, 4 * self.cpu_cores)


def nvml_words(error: Exception) -> str:
    """Describes an NVMLError for people."""
    if getattr(error, "value", None) == LIBRARY_NOT_FOUND:
        return NOT_FOUND
    if getattr(error, "value", None) == LIB_RM_VERSION_MISMATCH:
        return "the driver's library and its kernel module are of different versions: reboot, or reload the module"
    return str(error)


def inspect_machine(report: GpuReport | None = None) -> Machine:
    """Inspects this machine; takes some milliseconds, with GPUs up to a second unless their report is given."""
    import psutil

    report, memory = report or _probe_gpus(), psutil.virtual_memory()
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
        return GpuReport(problem=NO_LIBRARY if any(os.path.exists(file) for file in DRIVER_FILES) else NOT_FOUND)
    command = [sys.executable, "-P", "-m", "tuiapp.trainers.telemetry.probe"]
    probe = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        try:
            answer, _ = probe.communicate(timeout=min(SLOW_PROBE_S, GPU_PROBE_TIMEOUT_S))
        except subprocess.TimeoutExpired:
            print(f"tuiapp: waiting for the GPU driver, at most {GPU_PROBE_TIMEOUT_S:g} s", file=sys.stderr)
            answer, _ = probe.communicate(timeout=max(0.0, GPU_PROBE_TIMEOUT_S - SLOW_PROBE_S))
    except subprocess.TimeoutExpired:
        # Not waited for: a process that hangs in the driver dies only when its call returns.
        probe.kill()
        return GpuReport(problem=f"NVML did not answer within {GPU_PROBE_TIMEOUT_S:g} s")
    try:
        return msgspec.json.decode(answer, type=GpuReport)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return GpuReport(problem=f"the NVML probe died (exit code {probe.returncode})")


ROOT = Path("/sys/fs/cgroup")


def memory_groups(listing: Path = Path("/proc/self/cgroup"), root: Path = ROOT) -> list[Path]:
    """Returns candidate directories of the control groups that limit this process's memory, each before its parent.

    They are a container's, a service's, a batch job's; the limits of all apply. Both versions: memory.max and
    memory.current of v2 are memory.limit_in_bytes and memory.usage_in_bytes of v1. Source:
    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    try:
        lines = listing.read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "memory" if controllers else root
        # In a container the group's own directory may be what is mounted.
        inner = mount / group.lstrip("/")
        groups += [directory for directory in (inner, *inner.parents) if directory.is_relative_to(mount)]
    return groups


def memory_limit(groups: list[Path]) -> tuple[int, int] | None:
    """Returns the lowest limit of some groups, and the least that is free under one, in bytes; None without a limit.

    The file cache counts as free: the kernel reclaims it before it kills.
    """
    limits, free = [], []
    for group in groups:
        limit = _read_number(group / "memory.max") or _read_number(group / "memory.limit_in_bytes")
        used = _read_number(group / "memory.current") or _read_number(group / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            limits.append(limit)
            free.append(max(0, limit - used + _file_cache(group)))
    return (min(limits), min(free)) if limits else None


def _file_cache(group: Path) -> int:
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split(" ", 1) for line in lines)
    # In v1 the "total_" values include the groups below.
    prefix = "total_" if "total_inactive_file" in counts else ""
    return sum(int(counts.get(f"{prefix}{name}", 0)) for name in ("inactive_file", "active_file"))


def _read_number(path: Path) -> int | None:
    """Reads a number; None if there is no such file, and for "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class NotHereError(Exception):
    """This machine lacks what the run needs of it."""


def own_address(network: str = "") -> str:
    """Returns an IPv4 address of this machine: an interface's, or itself; without a name the first but loopback.

    Raises NotHereError.
    """
    # Its import costs 20 ms, and only runs on several nodes need it.
    import psutil

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    interfaces = {
        name: [address.address for address in addresses if address.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
    }
    if network:
        if interfaces.get(network):
            return interfaces[network][0]
        if any(network in addresses for addresses in interfaces.values()):
            return network
    else:
        outside = [
            address for addresses in interfaces.values() for address in addresses if not address.startswith("127.")
        ]
        if outside:
            return outside[0]
        raise NotHereError("this machine has no address but loopback; name another, such as lo.")
    listed = (
        ", ".join(f"{name} ({', '.join(addresses)})" for name, addresses in interfaces.items() if addresses) or "none"
    )
    raise NotHereError(f"{network!r} is neither an interface nor an address of this machine. It has: {listed}.")


def interface_of(address: str) -> str:
    """Returns the name of the interface with an address; "" if there is none."""
    import psutil

    return next(
        (name for name, some in psutil.net_if_addrs().items() if any(entry.address == address for entry in some)),
        "",
    )


def unused(machine: Machine) -> Machine:
    """Returns the machine as it would be if nobody used its GPUs: a run that waits may have any."""
    gpus = [
        msgspec.structs.replace(
            gpu, memory_used_bytes=0 if gpu.memory_total_bytes else None, processes=(), utilization_percent=0, leases=()
        )
        for gpu in machine.gpus
    ]
    return msgspec.structs.replace(machine, gpus=tuple(gpus))


VISIBLE = "CUDA_VISIBLE_DEVICES"


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
            matches = [*present][int(word) : int(word) + 1]
        else:
            matches = [uuid for uuid in (*present, *parts) if uuid.startswith(word)]
        if len(matches) != 1:
            break
        chosen += [uuid for uuid in present.get(matches[0]) or matches if uuid not in chosen]
    return chosen


LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""CUDA's major version → that of the oldest Linux driver that it runs on."""
LEAST_CAPABILITY = {13: (7, 5)}
"""CUDA's major version → the least compute capability that it has code for."""


def unsuited(what: str, cuda: str, machine: Machine, cure: str) -> str:
    """Returns why a build cannot use this machine's GPUs; "" if it can, or if that is not known.

    Args:
        what: The package and its version.
        cuda: The version of CUDA that it is built for: "13.0", "12".
        machine: With those GPUs that are to be used.
        cure: What to install in its place.
    """
    major = _major(cuda)
    driver, least = _major(machine.driver or ""), LEAST_DRIVER.get(major or 0)
    if driver is not None and least is not None and driver < least:
        needs = f"{what} is built for CUDA {cuda}, which needs driver {least} or newer; here it is {machine.driver}"
        return f"{needs}: update the driver, or {cure}" if major == max(LEAST_DRIVER) else f"{needs}: update the driver"
    oldest = LEAST_CAPABILITY.get(major or 0, (0, 0))
    for gpu in machine.gpus:
        if gpu.capability is not None and gpu.capability < oldest:
            has = ".".join(map(str, gpu.capability))
            return (
                f"{what} is built for CUDA {cuda}, which has no code for {gpu.name} (compute capability {has}): {cure}"
            )
    return ""


def suits_newest(machine: Machine) -> bool:
    """Returns whether builds for the newest CUDA can use this machine's GPUs."""
    return not unsuited("", str(max(LEAST_DRIVER)), machine, "")


def _major(version: str) -> int | None:
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else None
