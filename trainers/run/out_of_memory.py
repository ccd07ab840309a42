"""Detects whether the kernel's out-of-memory killer killed a rank.

SIGKILL looks the same whoever sent it, but the kernel counts its OOM kills: per control group (`oom_kill` in
memory.events, or memory.oom_control in cgroups v1), and for the whole machine in /proc/vmstat.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.machine import memory_groups

KEEP_S = 5.0
"""How long before a rank's end the kill may have happened: a large process takes a while to exit."""


class _Count(NamedTuple):
    file: Path
    kills: int


class OomWatch:
    """Compares the kernel's counts with those of a moment ago; `now` is monotonic."""

    def __init__(self, now: float, files: list[Path] | None = None) -> None:
        self._files = files
        self._counts: deque[tuple[float, _Count | None]] = deque([(now, self._read())])

    def poll(self, now: float) -> None:
        if now - self._counts[-1][0] >= KEEP_S:
            self._counts.append((now, self._read()))
            while len(self._counts) > 2:
                self._counts.popleft()

    def oom_killed(self) -> bool | None:
        """Whether it has killed something within `KEEP_S`; None if unknown."""
        before, now = self._counts[0][1], self._read()
        if before is None or now is None or before.file != now.file:
            return None
        return now.kills > before.kills

    def _read(self) -> _Count | None:
        # Looked up each time: a process may be moved to another group.
        files = _counters() if self._files is None else self._files
        return next((_Count(file, count) for file in files if (count := _read_count(file)) is not None), None)


def hint(oom_killed: bool | None) -> str:
    """Text to add to "was killed by SIGKILL"; "" if nothing is known."""
    if oom_killed is None:
        return ""
    return "by the kernel's out-of-memory killer" if oom_killed else "not by the kernel's out-of-memory killer"


def _read_count(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            lines = file.read(65536).splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(b" ")
        if name == b"oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def _counters() -> list[Path]:
    """The count's possible files: of this process's control group, else the machine's."""
    names = ("memory.events", "memory.oom_control")
    return [*(group / name for group in memory_groups() for name in names), Path("/proc/vmstat")]
