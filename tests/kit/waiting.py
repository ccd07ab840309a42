"""Waits for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(is_so: Callable[[], object], seconds: float = 60.0) -> float:
    """Wait until something holds; fails when that takes too long, and gives the seconds it took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < seconds, f"not so after {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - began
