"""Who owns the processes that a driver lists: a rank, another user, or unknown."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import psutil

from trainers.config.machine import GpuProcess, describe_process


class Owners:
    def __init__(self, ranks: Mapping[int, int]) -> None:
        self._ranks = {pid: rank for rank, pid in ranks.items()}

    def describe(self, pid: int, memory_bytes: int | None) -> GpuProcess:
        found = describe_process(pid, memory_bytes)
        return found if found.pid is None else msgspec.structs.replace(found, rank=self._rank_of(pid))

    def _rank_of(self, pid: int) -> int | None:
        """The rank that is the process, or one of its ancestors."""
        try:
            ancestors = psutil.Process(pid).parents()
        except psutil.Error:
            ancestors = []
        pids = [pid, *(ancestor.pid for ancestor in ancestors)]
        return next((self._ranks[one] for one in pids if one in self._ranks), None)
