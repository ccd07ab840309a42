"""A process that sees to something while it is needed: a queue's keeper, a study's search; one of each at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.files import is_full, open_regular
from tuiapp.trainers.contract.lock import LockNote, is_held, read_note, take, write_note
from tuiapp.trainers.contract.process_identity import is_alive, is_stopped, machine
from tuiapp.trainers.launch.processes import start_process

MAX_LOG_BYTES = 1 << 20
NOTED_S = 1.0
"""Seconds within which the holder of a lock notes who it is."""
AGAIN_S = 10.0
"""Seconds until a process is started again that ended too early to say why: its environment may be broken."""
FULL_S, LONGEST_S = 5.0, 60.0
"""Seconds until the first further try on a full disk, twice as many each time, and at most."""


@dataclass(frozen=True)
class Daemon:
    """A module that runs in a process of its own for as long as that holds a lock; one that does not run, too."""

    lock: Path
    log: Path
    module: str
    arguments: tuple[str, ...]

    def start(self, environment: Mapping[str, str], directory: str = "/") -> None:
        """Starts the process unless there is one; raises OSError if it cannot be started."""
        os.close(open_regular(self.lock, os.O_RDWR | os.O_CREAT))
        if not is_held(self.lock):
            os.utime(self.lock)
            start_process(self.log, module(self.module, *self.arguments), environment=environment, directory=directory)

    def was_just_started(self) -> bool:
        """Whether a process, which may have ended, was started within the last `AGAIN_S`."""
        with contextlib.suppress(OSError):
            return abs(time.time() - os.stat(self.lock).st_mtime) < AGAIN_S
        return False

    def trouble(self) -> str:
        """Says why the holder of the lock does nothing; "" if all is well, or nobody holds it."""
        deadline = time.monotonic() + NOTED_S
        while is_held(self.lock):
            note = read_note(self.lock)
            if note.machine not in ("", machine()):
                return ""
            alive = is_alive(note.supervisor)
            # On a full disk none can be written.
            if pid := int(note.supervisor.partition(":")[0]) if alive else self._find():
                return f"its process {pid} is stopped; to continue it: kill -CONT {pid}" if is_stopped(pid) else ""
            if time.monotonic() > deadline:
                return f"another program has locked {self.lock}"
            time.sleep(0.02)
        return ""

    def _find(self) -> int:
        """Returns the pid of the process; 0 if there is none."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if self.module in command and tuple(command[-len(self.arguments) :]) == self.arguments:
                    return process.pid
        return 0


def serve(lock: Path, log: Path, work: Callable[[], None], is_needed: Callable[[], bool]) -> None:
    """Does the work under its lock; ends at once if another process has that.

    On a full disk it is begun anew when there may be room again: whatever it knows is in files.
    """
    # It outlives the login.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        if log.stat().st_size > MAX_LOG_BYTES:
            os.truncate(log, 0)
    done, later = False, FULL_S
    # Whoever asked for more while it ended has seen that it was there.
    while not done or is_needed():
        try:
            fd = take(lock, 0.5)
        except BlockingIOError:
            return
        with open(fd):
            write_note(fd, LockNote.of_this_process())
            try:
                work()
                done, later = True, FULL_S
            except Exception as error:
                if not is_full(error):
                    raise
                say(f"the disk is full: {error}; tried again in {later:.0f} s")
                time.sleep(later)
                later = min(2 * later, LONGEST_S)


def say(text: str) -> None:
    """Writes a line into the log."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=sys.stderr, flush=True)
