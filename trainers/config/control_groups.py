"""The control groups that limit this process's memory: a container's, a service's, a batch job's.

Of version 2; a limit by version 1 is not seen. Source:
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def memory_groups(own: Path = Path("/proc/self/cgroup"), root: Path = ROOT) -> list[Path]:
    """Candidate directories of this process's groups, each before its parent: limits of all apply."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::")), None)
    if group is None:
        return []
    # In a container the group's own directory may be what is mounted.
    return [one for one in (root / group, *(root / group).parents) if one.is_relative_to(root)]


def memory_limit(groups: list[Path]) -> tuple[int, int] | None:
    """The lowest limit of some groups, and the least that is free under one, in bytes; None without a limit.

    The file cache counts as free: the kernel reclaims it before it kills.
    """
    limits, free = [], []
    for group in groups:
        limit, used = _read_number(group / "memory.max"), _read_number(group / "memory.current")
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
    return sum(int(counts.get(name, 0)) for name in ("inactive_file", "active_file"))


def _read_number(path: Path) -> int | None:
    """None if there is no such file, and for "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
