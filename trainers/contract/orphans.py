"""Finds and ends processes of runs by the token in their environment: ranks, and their children.

`kill_tagged` ends those of one run. Strays are those whose supervisor is gone; they are ended on a person's request.

When a supervisor is killed, its reaper ends its ranks; ranks end themselves when both are gone. What can remain is a
rank that is stopped or stuck in native code, or what a rank has started. Every process of a run carries the run's token
and the identity of its supervisor, pid and start time, in its environment.

The reaper, which runs beside every run, imports this: it must stay small, without psutil.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.contract.process_identity import is_alive, pid_namespace, read_proc, start_time

TOKEN = "TUIAPP_RUN_TOKEN"
"""Environment variable of every process of a run, children included: the run's id, a dash, 16 random digits."""
SUPERVISOR = "TUIAPP_SUPERVISOR"
"""Environment variable beside it: `identity` of the supervisor."""

_TOKEN_DIGITS = 16

GONE_S = 5.0
TRACKER_S = 1.0
_TRACKER = "multiprocessing.resource_tracker"


class Orphan(NamedTuple):
    pid: int
    start: int
    """In clock ticks since boot: with the pid it identifies this process."""
    token: str
    rank: str
    """The rank's number in digits, also for its children; "" for one of the run's helpers."""
    command: str

    @property
    def run_id(self) -> str:
        return self.token[: -_TOKEN_DIGITS - 1]


def tagged_processes(token: str) -> list[int]:
    """Returns the pids of the live processes that carry a run's token, except this one."""
    return [pid for pid in _others() if _environ(pid).get(TOKEN) == token]


def kill_tagged(token: str, timeout_s: float = GONE_S) -> list[int]:
    """Sends SIGKILL to every process that carries a token, until there is none; returns their pids.

    Python's resource tracker gets `TRACKER_S`: once the others are gone it removes the semaphores and the shared memory
    that they have left, and ends.
    """
    killed: list[int] = []
    began = time.monotonic()
    while (pids := tagged_processes(token)) and (passed := time.monotonic() - began) < timeout_s:
        due = [pid for pid in pids if passed > TRACKER_S or _TRACKER not in _command(pid)]
        killed += [pid for pid in due if _kill(pid, token) and pid not in killed]
        time.sleep(0.02)
    return killed


def find_orphans(runs_dir: Path | None = None) -> list[Orphan]:
    """Returns the processes of this user's runs whose supervisor is gone; with `runs_dir`, of the runs in it only."""
    own_namespace, alive = pid_namespace("self"), dict[str, bool]()
    orphans = []
    for pid in _others():
        environ = _environ(pid)
        token, supervisor = environ.get(TOKEN, ""), environ.get(SUPERVISOR, "")
        # In a container, which this process may see into, pids are others.
        if not token or not supervisor or pid_namespace(str(pid)) != own_namespace:
            continue
        if supervisor not in alive:
            alive[supervisor] = is_alive(supervisor)
        if not alive[supervisor] and (start := start_time(pid)):
            orphan = Orphan(pid, start, token, environ.get("RANK", ""), _command(pid))
            if runs_dir is None or os.path.isdir(runs_dir / orphan.run_id):
                orphans.append(orphan)
    return sorted(orphans, key=lambda orphan: (orphan.token, orphan.rank, orphan.pid))


def end_orphans(orphans: list[Orphan]) -> list[Orphan]:
    """Sends SIGKILL to each that is still the same process, and waits; returns those still there."""
    for orphan in orphans:
        _kill(orphan.pid, orphan.token, orphan.start)
    deadline = time.monotonic() + GONE_S
    while (left := [orphan for orphan in orphans if is_alive(f"{orphan.pid}:{orphan.start}")]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.02)
    return left


def describe_orphans(orphans: list[Orphan]) -> str:
    """Lists what was left behind, one line per run."""
    runs: dict[str, list[Orphan]] = {}
    for orphan in orphans:
        runs.setdefault(orphan.run_id, []).append(orphan)
    return "\n".join(f"{run_id}: {', '.join(map(_describe, some))}" for run_id, some in runs.items())


def _describe(orphan: Orphan) -> str:
    if not orphan.rank:
        return f"pid {orphan.pid}"
    # Without the package's name: it was `trainers.rank.process` before 0.3.
    what = "rank" if "trainers.rank.process" in orphan.command else "started by rank"
    return f"{what} {orphan.rank} (pid {orphan.pid})"


def _kill(pid: int, token: str, start: int = 0) -> bool:
    """Sends SIGKILL to a process that carries a token; with a start time only to that one."""
    # The pidfd pins the process while it is checked again: the pid may be another's by now.
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _environ(pid).get(TOKEN) != token or (start and start_time(pid) != start):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _others() -> list[int]:
    this = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != this]


def _environ(pid: int) -> dict[str, str]:
    pairs = (entry.partition(b"=") for entry in read_proc(pid, "environ").split(b"\0") if b"=" in entry)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def _command(pid: int) -> str:
    return read_proc(pid, "cmdline")[:200].replace(b"\0", b" ").decode(errors="replace").strip()
