"""Who owns the processes that a driver lists: a rank, another user, or unknown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import psutil

from trainers.config.machine import GpuProcess

HOST_PID_NAMESPACE = 0xEFFFFFFC
"""Its number in every Linux kernel (PROC_PID_INIT_INO)."""
HOST_PIDS_VARIABLE = "TUIAPP_TELEMETRY_HOST_PIDS"
"""Environment variable, 1 or 0, that overrides whether the driver's pids are taken for valid here."""


class Owners:
    def __init__(self, ranks: Mapping[int, int]) -> None:
        self._ranks = {pid: rank for rank, pid in ranks.items()}

    def describe(self, pid: int, memory_bytes: int | None) -> GpuProcess:
        # In a PID namespace the driver still reports the host's pids, which mean others here, or nobody.
        valid = os.environ.get(HOST_PIDS_VARIABLE) != "0"
        if not os.environ.get(HOST_PIDS_VARIABLE):
            valid = os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE
        if valid:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                pids = [pid, *(ancestor.pid for ancestor in process.parents())]
                return GpuProcess(
                    pid=pid,
                    rank=next((self._ranks[one] for one in pids if one in self._ranks), None),
                    user=process.username(),
                    name=process.name(),
                    memory_bytes=memory_bytes,
                )
        return GpuProcess(memory_bytes=memory_bytes)
