"""Whether the kernel's out-of-memory killer was at work when a rank was killed.

SIGKILL looks the same whoever sent it, but the kernel counts what it kills for want of memory: per control group
(`oom_kill` in memory.events, or memory.oom_control in the first version of cgroups), and on the whole machine in
/proc/vmstat.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import NamedTuple

from trainers.config.control_groups import memory_groups

KEEP_S = 5.0
"""How long before a rank's end the killer may have struck: a large process takes a while to be gone."""


class _Count(NamedTuple):
    file: Path
    kills: int


class OomWatch:
    """Compares the kernel's counts now with those of a moment ago.

    Args:
        now: Seconds on the monotonic clock.
        files: Where the counts are; found out by default.
    """

    def __init__(self, now: float, files: list[Path] | None = None) -> None:
        self._files = files
        self._counts: deque[tuple[float, _Count | None]] = deque([(now, self._read())])

    def look(self, now: float) -> None:
        """Note the counts; call now and then."""
        if now - self._counts[-1][0] >= KEEP_S:
            self._counts.append((now, self._read()))
            while len(self._counts) > 2:
                self._counts.popleft()

    def struck(self) -> bool | None:
        """Whether it has killed something in the last seconds; None where the kernel does not tell."""
        before, now = self._counts[0][1], self._read()
        if before is None or now is None or before.file != now.file:
            return None
        return now.kills > before.kills

    def _read(self) -> _Count | None:
        # Looked up each time: a process may be moved to another group.
        files = _counters() if self._files is None else self._files
        return next((_Count(file, count) for file in files if (count := _read_count(file)) is not None), None)


def hint(struck: bool | None) -> str:
    """What to add to "was killed by SIGKILL"; "" where nothing is known."""
    if struck is None:
        return ""
    return "by the kernel's out-of-memory killer" if struck else "not by the kernel's out-of-memory killer"


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
    """Where the count may be: of this process's control group, or else the machine's."""
    names = ("memory.events", "memory.oom_control")
    return [*(group / name for group in memory_groups() for name in names), Path("/proc/vmstat")]
