"""Samples the host from /proc, from files held open and reread each time."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from trainers.contract.events import HostSample

LOOPBACK = b"lo"


class ProcFile:
    """A file of /proc, held open; raises OSError if there is none."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = 4096

    def read(self) -> bytes:
        """Reads its present content; raises OSError if its process is gone."""
        while len(data := os.pread(self._fd, self._size, 0)) == self._size:
            self._size *= 2
        return data

    def close(self) -> None:
        os.close(self._fd)


class Rate:
    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def of(self, count: int | None, now: float) -> float | None:
        """The rate since the last call; None at the first, and if a count has restarted."""
        last, self._last = self._last, None if count is None else (now, count)
        if count is None or last is None or now <= last[0] or count < last[1]:
            return None
        return (count - last[1]) / (now - last[0])


class HostSampler:
    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._stat, self._memory = ProcFile("/proc/stat"), ProcFile("/proc/meminfo")
        self._load, self._network = ProcFile("/proc/loadavg"), ProcFile("/proc/net/dev")
        self._busy = self._read_busy()
        self._received, self._sent = Rate(), Rate()

    def sample(self, now: float) -> HostSample:
        whole, *cores = self._shares()
        memory = self._read_memory()
        load = [float(word) for word in self._load.read().split()[:3]]
        received, sent = self._read_network()
        shm_used, _, shm_total = _space("/dev/shm")
        _, free, disk = _space(self._run_dir)
        return HostSample(
            cpu_percent=whole,
            cpu_percent_per_core=cores,
            cpu_cores=len(os.sched_getaffinity(0)),
            load_1m=load[0],
            load_5m=load[1],
            load_15m=load[2],
            memory_used_bytes=memory[b"MemTotal:"] - memory[b"MemAvailable:"],
            memory_total_bytes=memory[b"MemTotal:"],
            swap_used_bytes=memory[b"SwapTotal:"] - memory[b"SwapFree:"],
            swap_total_bytes=memory[b"SwapTotal:"],
            shm_used_bytes=shm_used,
            shm_total_bytes=shm_total,
            disk_free_bytes=free or 0,
            disk_total_bytes=disk,
            network_rx_bytes_per_s=self._received.of(received, now),
            network_tx_bytes_per_s=self._sent.of(sent, now),
        )

    def _shares(self) -> list[float]:
        """Percent of the time in which all cores, then each, were busy."""
        before, self._busy = self._busy, self._read_busy()
        shares = []
        for (busy, total), (busy_before, total_before) in zip(self._busy, before, strict=False):
            passed = total - total_before
            # Counts of idle time may fall by a tick.
            share = 100 * (busy - busy_before) / passed if passed > 0 else 0.0
            shares.append(round(min(100.0, max(0.0, share)), 1))
        return shares

    def _read_busy(self) -> list[tuple[int, int]]:
        """Busy ticks and total ticks, over all cores, then of each."""
        counts = []
        for line in self._stat.read().split(b"\n"):
            if not line.startswith(b"cpu"):
                break
            # user nice system idle iowait irq softirq steal; a guest's time is part of user's.
            ticks = [int(word) for word in line.split()[1:9]]
            total = sum(ticks)
            counts.append((total - ticks[3] - ticks[4], total))
        return counts

    def _read_memory(self) -> dict[bytes, int]:
        found = {b"MemTotal:": 0, b"MemAvailable:": 0, b"SwapTotal:": 0, b"SwapFree:": 0}
        missing = len(found)
        for line in self._memory.read().split(b"\n"):
            name, _, rest = line.partition(b" ")
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
                missing -= 1
                if not missing:
                    break
        return found

    def _read_network(self) -> tuple[int, int]:
        received = sent = 0
        for line in self._network.read().split(b"\n")[2:]:
            name, colon, counts = line.partition(b":")
            if colon and name.strip() != LOOPBACK:
                words = counts.split()
                received, sent = received + int(words[0]), sent + int(words[8])
        return received, sent


MAX_CHILDREN = 512
"""Of a rank; beyond that it starts more processes than anybody wants to know of."""


class RankSampler:
    """Samples a rank with the processes that it has started, loaders of data or ranks of its own.

    Raises OSError if the rank is gone.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._own = ProcessSampler(pid)
        self._children: dict[int, ProcessSampler] = {}

    def sample(self, now: float) -> dict[str, float | int | None]:
        total = self._own.sample(now)
        pids = _descendants(self._pid)
        for pid in [pid for pid in self._children if pid not in pids]:
            self._children.pop(pid).close()
        for pid in pids:
            # It may end at any moment.
            with contextlib.suppress(OSError):
                if pid not in self._children:
                    self._children[pid] = ProcessSampler(pid)
                for name, value in self._children[pid].sample(now).items():
                    if value is not None and (sum_ := total[name]) is not None:
                        total[name] = sum_ + value
        return total

    def close(self) -> None:
        for one in (self._own, *self._children.values()):
            one.close()


def _descendants(pid: int) -> list[int]:
    """The processes that a process has started from its main thread, and those that these have started."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{parent}/task/{parent}/children", "rb") as file:
            found += map(int, file.read().split())
        if len(found) > MAX_CHILDREN:
            break
    return found[1 : MAX_CHILDREN + 1]


class ProcessSampler:
    """Samples one process by files that stay its own even if its pid is reused; raises OSError if it is gone."""

    def __init__(self, pid: int) -> None:
        self._stat, self._statm = ProcFile(f"/proc/{pid}/stat"), ProcFile(f"/proc/{pid}/statm")
        self._io: ProcFile | None = None
        # Some kernels do not count it, and not every process may be read.
        with contextlib.suppress(OSError):
            self._io = ProcFile(f"/proc/{pid}/io")
        self._cpu, self._read, self._written = Rate(), Rate(), Rate()

    def sample(self, now: float) -> dict[str, float | int | None]:
        # The program's name, in parentheses, may hold blanks and parentheses.
        words = self._stat.read().rpartition(b")")[2].split()
        pages = self._statm.read().split()
        read, written = self._storage()
        ticks = self._cpu.of(int(words[11]) + int(words[12]), now)
        return {
            "cpu_percent": None if ticks is None else round(100 * ticks / TICKS_PER_S, 1),
            "rss_bytes": int(pages[1]) * PAGE_BYTES,
            "shared_bytes": int(pages[2]) * PAGE_BYTES,
            "threads": int(words[17]),
            "read_bytes_per_s": self._read.of(read, now),
            "write_bytes_per_s": self._written.of(written, now),
        }

    def _storage(self) -> tuple[int | None, int | None]:
        if self._io is None:
            return None, None
        try:
            # rchar wchar syscr syscw read_bytes write_bytes cancelled_write_bytes, a name before each.
            words = self._io.read().split()
            return int(words[9]), int(words[11])
        except (OSError, IndexError):
            return None, None

    def close(self) -> None:
        for file in (self._stat, self._statm, self._io):
            if file is not None:
                file.close()


TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _space(path: str) -> tuple[int | None, int | None, int | None]:
    """Bytes used, free to the user, and total, of a path's file system; None if there is none."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None, None, None
    unit = found.f_frsize
    # What is reserved for root is neither used nor free.
    used, free = (found.f_blocks - found.f_bfree) * unit, found.f_bavail * unit
    return used, free, used + free


def command_name(pid: int) -> str:
    """A process's program; "" if unknown."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""
