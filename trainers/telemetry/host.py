"""Samples the host and the ranks' processes, and finds out whose the processes on a GPU are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import msgspec
import psutil

from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import HostSample


class Rate:
    """How fast a count rises between two calls."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def of(self, count: float | None, now: float) -> float | None:
        """Returns the rate since the last call; None at the first, and if a count has restarted."""
        last, self._last = self._last, None if count is None else (now, count)
        if count is None or last is None or now <= last[0] or count < last[1]:
            return None
        return (count - last[1]) / (now - last[0])


class HostSampler:
    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._received, self._sent = Rate(), Rate()

    def sample(self, now: float) -> HostSample:
        """Samples the host; shares of the CPU are those since the last call."""
        cores = psutil.cpu_percent(percpu=True)
        (memory_used, memory_total), swap = system_memory(), psutil.swap_memory()
        load = os.getloadavg()
        network = [counts for name, counts in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        shm_used, _, shm_total = _space("/dev/shm")
        _, free, disk = _space(self._run_dir)
        return HostSample(
            cpu_percent=round(sum(cores) / len(cores), 1),
            cpu_percent_per_core=cores,
            cpu_cores=len(os.sched_getaffinity(0)),
            load_1m=load[0],
            load_5m=load[1],
            load_15m=load[2],
            memory_used_bytes=memory_used,
            memory_total_bytes=memory_total,
            swap_used_bytes=swap.used,
            swap_total_bytes=swap.total,
            shm_used_bytes=shm_used,
            shm_total_bytes=shm_total,
            disk_free_bytes=free or 0,
            disk_total_bytes=disk,
            network_rx_bytes_per_s=self._received.of(sum(counts.bytes_recv for counts in network), now),
            network_tx_bytes_per_s=self._sent.of(sum(counts.bytes_sent for counts in network), now),
        )


def system_memory() -> tuple[int, int]:
    """Returns how many bytes are in use, and how many there are."""
    memory = psutil.virtual_memory()
    return memory.total - memory.available, memory.total


class RankSampler:
    """Samples a rank with the processes that it has started, loaders of data or ranks of its own.

    Raises psutil.Error if the rank is gone.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._own = ProcessSampler(pid)
        self._children: dict[int, ProcessSampler] = {}

    def sample(self, now: float) -> dict[str, float | int | None]:
        total = self._own.sample(now)
        before, self._children = self._children, {}
        for pid in _descendants(self._pid):
            # It may end at any moment.
            with contextlib.suppress(psutil.Error):
                child = self._children[pid] = before.get(pid) or ProcessSampler(pid)
                for name, value in child.sample(now).items():
                    if value is not None and (sum_ := total[name]) is not None:
                        total[name] = sum_ + value
        return total


def _descendants(pid: int) -> list[int]:
    """Returns the processes that one has started from its main thread, and those that these have started."""
    # psutil would read every process of the machine.
    pids = [pid]
    for parent in pids:
        with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{parent}/children", "rb") as file:
            pids += map(int, file.read().split())
    return pids[1:]


class ProcessSampler:
    """Samples one process; raises psutil.Error if it is gone."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu, self._read, self._written = Rate(), Rate(), Rate()

    def sample(self, now: float) -> dict[str, float | int | None]:
        read = written = None
        with self._process.oneshot():
            times, memory, threads = self._process.cpu_times(), self._process.memory_info(), self._process.num_threads()
            # Some kernels do not count it, and not every process may be read.
            with contextlib.suppress(psutil.Error, OSError, RuntimeError, AttributeError):
                io = self._process.io_counters()
                read, written = io.read_bytes, io.write_bytes
        busy = self._cpu.of(times.user + times.system, now)
        return {
            "cpu_percent": None if busy is None else round(100 * busy, 1),
            "rss_bytes": memory.rss,
            "shared_bytes": memory.shared,
            "threads": threads,
            "read_bytes_per_s": self._read.of(read, now),
            "write_bytes_per_s": self._written.of(written, now),
        }


def _space(path: str) -> tuple[int | None, int | None, int | None]:
    """Returns the bytes of a path's file system: used, free to the user, and total; None if there is none."""
    try:
        usage = psutil.disk_usage(path)
    except OSError:
        return None, None, None
    # What is reserved for root is neither used nor free.
    return usage.used, usage.free, usage.used + usage.free


HOST_PID_NAMESPACE = 0xEFFFFFFC
"""The host namespace's number in every Linux kernel (PROC_PID_INIT_INO)."""
HOST_PIDS_VARIABLE = "TUIAPP_TELEMETRY_HOST_PIDS"
"""Environment variable, 1 or 0, that overrides whether the driver's pids are taken for valid here."""

KEPT = 1000
"""How many processes are remembered: on a shared machine thousands come and go beside a long run."""


class Owners:
    """Says whose a process on a GPU is, if the driver's pids are valid here; `ranks` has the pid of each rank."""

    def __init__(self, ranks: Mapping[int, int]) -> None:
        self._ranks = {pid: rank for rank, pid in ranks.items()}
        self._known: dict[int, tuple[psutil.Process, GpuProcess]] = {}
        # In a PID namespace the driver still reports the host's pids, which mean others here, or nobody.
        wanted = os.environ.get(HOST_PIDS_VARIABLE)
        self._valid = wanted != "0" if wanted else os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE

    def describe(self, pid: int, memory_bytes: int | None) -> GpuProcess:
        if self._valid:
            with contextlib.suppress(psutil.Error):
                process, described = self._known.get(pid) or self._find(pid)
                # A number that is given again is another process.
                if not process.is_running():
                    described = self._find(pid)[1]
                return msgspec.structs.replace(described, memory_bytes=memory_bytes)
        return GpuProcess(memory_bytes=memory_bytes)

    def _find(self, pid: int) -> tuple[psutil.Process, GpuProcess]:
        process = psutil.Process(pid)
        pids: list[int] = []
        ancestor: psutil.Process | None = process
        # Those of other users may be hidden (hidepid=1 of proc).
        with contextlib.suppress(psutil.AccessDenied):
            while ancestor is not None:
                pids.append(ancestor.pid)
                ancestor = ancestor.parent()
        rank = next((self._ranks[number] for number in pids if number in self._ranks), None)
        if len(self._known) >= KEPT:
            self._known.clear()
        entry = process, GpuProcess(pid=pid, rank=rank, user=process.username(), name=process.name())
        self._known[pid] = entry
        return entry
