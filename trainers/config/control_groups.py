"""The control groups that limit this process's memory: a container's, a service's, a batch job's.

Both versions: memory.max and memory.current of v2 are memory.limit_in_bytes and memory.usage_in_bytes of v1. Source:
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
    found = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "memory" if controllers else root
        # In a container the group's own directory may be what is mounted.
        inner = mount / group.lstrip("/")
        found += [one for one in (inner, *inner.parents) if one.is_relative_to(mount)]
    return found


def memory_limit(groups: list[Path]) -> tuple[int, int] | None:
    """The lowest limit of some groups, and the least that is free under one, in bytes; None without a limit.

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
    """None if there is no such file, and for "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
