"""Finds and ends processes by the token in their environment: ranks, and whatever they started.

Imports almost nothing, so that the reaper, which runs beside every run, stays small.
"""

from __future__ import annotations

import os
import signal
import time

TOKEN_VARIABLE = b"TUIAPP_RUN_TOKEN="


def carriers(token: str) -> list[int]:
    """Pids of the live processes that carry a run's token, this one excepted."""
    wanted = TOKEN_VARIABLE + token.encode()
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and int(name) != os.getpid() and _carries(name, wanted)
    ]


def kill_carriers(token: str, timeout_s: float = 5.0) -> list[int]:
    """SIGKILL every process that carries a token, until there is none.

    Returns:
        The pids that were killed.
    """
    wanted = TOKEN_VARIABLE + token.encode()
    killed: list[int] = []
    deadline = time.monotonic() + timeout_s
    while (pids := carriers(token)) and time.monotonic() < deadline:
        for pid in pids:
            if _kill(pid, wanted) and pid not in killed:
                killed.append(pid)
        time.sleep(0.02)
    return killed


def _kill(pid: int, wanted: bytes) -> bool:
    # The pidfd holds the process fast; the second look at its environment rules out that the pid was another's.
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries(str(pid), wanted):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _carries(pid: str, wanted: bytes) -> bool:
    # A zombie's environment is empty.
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False
