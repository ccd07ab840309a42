"""Who owns the processes that a driver lists: a rank, another user, or unknown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import msgspec
import psutil

from tuiapp.trainers.config.machine import GpuProcess

HOST_PID_NAMESPACE = 0xEFFFFFFC
"""The host namespace's number in every Linux kernel (PROC_PID_INIT_INO)."""
HOST_PIDS_VARIABLE = "TUIAPP_TELEMETRY_HOST_PIDS"
"""Environment variable, 1 or 0, that overrides whether the driver's pids are taken for valid here."""

KEPT = 1000
"""How many processes are remembered: on a shared machine thousands come and go beside a long run."""


class Owners:
    def __init__(self, ranks: Mapping[int, int]) -> None:
        self._ranks = {pid: rank for rank, pid in ranks.items()}
        self._known: dict[int, tuple[psutil.Process, GpuProcess]] = {}
        # In a PID namespace the driver still reports the host's pids, which mean others here, or nobody.
        wanted = os.environ.get(HOST_PIDS_VARIABLE)
        self._valid = wanted != "0" if wanted else os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE

    def describe(self, pid: int, memory_bytes: int | None) -> GpuProcess:
        if self._valid:
            with contextlib.suppress(psutil.Error):
                process, known = self._known.get(pid) or self._find(pid)
                # A number that is given again is another process.
                if not process.is_running():
                    known = self._find(pid)[1]
                return msgspec.structs.replace(known, memory_bytes=memory_bytes)
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
        rank = next((self._ranks[one] for one in pids if one in self._ranks), None)
        if len(self._known) >= KEPT:
            self._known.clear()
        found = process, GpuProcess(pid=pid, rank=rank, user=process.username(), name=process.name())
        self._known[pid] = found
        return found
