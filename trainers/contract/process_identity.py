"""Identifies processes: a pid is reused in time, and means nothing on another machine."""

from __future__ import annotations

import contextlib
import os
import signal


def identity(pid: int) -> str:
    """Returns a process's pid and start time: unique until the machine restarts."""
    return f"{pid}:{start_time(pid)}"


def is_alive(known_as: str) -> bool:
    """Returns whether a process given by `identity` runs; a zombie does not."""
    pid, start = _parse(known_as)
    return start_time(pid) == start != 0


def start_time(pid: int) -> int:
    """Returns when a process began, in clock ticks since boot; 0 if it is gone, or a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in (b"Z", b"X") else 0


def send_signal(known_as: str, number: signal.Signals) -> None:
    """Signals the process given by `identity`, and no other that has its pid by now.

    Raises ProcessLookupError if it is gone, PermissionError if it is another user's.
    """
    pid, start = _parse(known_as)
    # A pidfd stays with the process, whatever happens to the pid meanwhile.
    fd = os.pidfd_open(pid) if pid else -1
    try:
        if start == 0 or start_time(pid) != start:
            raise ProcessLookupError
        signal.pidfd_send_signal(fd, number)
    finally:
        if fd >= 0:
            os.close(fd)


def kill_group(known_as: str) -> None:
    """Kills the process given by `identity`, if it runs, with the process group that it leads."""
    if is_alive(known_as):
        with contextlib.suppress(OSError):
            os.killpg(_parse(known_as)[0], signal.SIGKILL)


def machine() -> str:
    """Returns this machine's boot, and the namespace in which this process sees pids; "" if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read(64).strip()} {pid_namespace('self')}"
    except OSError:
        return ""


def pid_namespace(pid: str) -> str:
    """Returns the namespace of a process's pid; "" if unknown."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _parse(known_as: str) -> tuple[int, int]:
    pid, _, start = known_as.partition(":")
    return (int(pid), int(start)) if pid.isdecimal() and start.isdecimal() else (0, 0)


def is_stopped(pid: int) -> bool:
    """Returns whether a process is stopped by a signal, or by a debugger."""
    return _stat(pid)[:1] in ([b"T"], [b"t"])


def read_proc(pid: int, name: str) -> bytes:
    """Reads a file of a process below /proc; b"" if it is gone, or another user's."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
    return b""


def _stat(pid: int) -> list[bytes]:
    """Returns the fields of proc_pid_stat(5) from the state on, of which the start time is the 19th after it."""
    stat = read_proc(pid, "stat")
    # Before them is the program's name in parentheses, which may hold anything.
    return stat[stat.rfind(b")") + 2 :].split()
