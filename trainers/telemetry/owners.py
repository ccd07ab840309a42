"""Who owns the processes that a driver lists: a rank, another user, or unknown."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from trainers.config.machine import GpuProcess
from trainers.telemetry.host import command_name

FIRST_NAMESPACE = "pid:[4026531836]"
"""The host's own pids (the kernel's PROC_PID_INIT_INO)."""
GENERATIONS = 8
"""How many ancestors of a process are searched for a rank."""
KEPT = 1000


def reports_our_pids() -> bool:
    """Whether a driver's pids are valid here.

    Drivers report the host's pids. In a container with its own pids they name other processes, or none.
    `TUIAPP_TELEMETRY_HOST_PIDS=1` or `0` overrides the detection.
    """
    if said := os.environ.get("TUIAPP_TELEMETRY_HOST_PIDS"):
        return said != "0"
    try:
        return os.readlink("/proc/self/ns/pid") == FIRST_NAMESPACE
    except OSError:
        return False


class Owners:
    """Looks up processes, each once; `ours`: whether the driver's pids are valid here."""

    def __init__(self, ranks: Mapping[int, int], *, ours: bool) -> None:
        self._ranks = {pid: rank for rank, pid in ranks.items()}
        self._ours = ours
        self._known: dict[tuple[int, int], tuple[int | None, str, str]] = {}
        """Process and its start → rank, user, program."""

    def describe(self, pid: int, memory_bytes: int | None) -> GpuProcess:
        start = _stat(pid)[1] if self._ours else None
        if start is None:
            # A pid of the host's, or a process that has ended meanwhile.
            return GpuProcess(memory_bytes=memory_bytes)
        if (pid, start) not in self._known:
            if len(self._known) > KEPT:
                self._known.clear()
            self._known[pid, start] = self._rank_of(pid), _user(pid), command_name(pid)
        rank, user, name = self._known[pid, start]
        return GpuProcess(pid=pid, rank=rank, user=user, name=name, memory_bytes=memory_bytes)

    def _rank_of(self, pid: int) -> int | None:
        ancestor: int | None = pid
        for _ in range(GENERATIONS):
            if ancestor is None or ancestor <= 1:
                return None
            if ancestor in self._ranks:
                return self._ranks[ancestor]
            ancestor = _stat(ancestor)[0]
        return None


def _stat(pid: int) -> tuple[int | None, int | None]:
    """Its parent, and start time in ticks; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return int(words[1]), int(words[19])
    except (OSError, IndexError, ValueError):
        return None, None


def _user(pid: int) -> str:
    try:
        number = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
