"""The ports on which a run of several nodes may listen, as the key `master_port` says."""

from __future__ import annotations

import re

ANY = range(1)
"""Port 0, for which the system chooses a free one."""


def read_ports(text: str) -> range:
    """Reads "29500" or "29500-29510", both ends included, and "" as `ANY`; raises ValueError."""
    if not text.strip():
        return ANY
    found = re.fullmatch(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?", text)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= 65_535:
        raise ValueError(f"{text[:60]!r} is no port or range of ports: use one of 1 to 65535, or LOW-HIGH.")
    return range(low, high + 1)
