"""Reads the processes of this machine."""

from __future__ import annotations

import os
import pwd
import shlex
from functools import lru_cache
from pathlib import Path

import psutil

from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import read_about
from tuiapp.trainers.launch.processes import SUPERVISOR_MODULE
from tuiapp.trainers.state.text import sanitize
from tuiapp.view.devices.processes import Seen

COMMAND_CHARACTERS = 400


class ProcessReader:
    """What is dear to read, and stays, is read once for each process: its user and its command."""

    def __init__(self) -> None:
        self._known: dict[psutil.Process, tuple[str, str, str]] = {}

    def read(self) -> dict[int, Seen]:
        """Returns the processes by pid; the CPU use is since the last call. Kernel threads are left out."""
        processes: dict[int, Seen] = {}
        descriptions: dict[psutil.Process, tuple[str, str, str]] = {}
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    description = self._known.get(process)
                    fresh = description is None
                    if description is None:
                        command = process.cmdline()
                        description = _user(process.uids().effective), _command(command), _run(command)
                    descriptions[process] = description
                    if description[1]:
                        busy = process.cpu_percent()
                        memory = process.memory_info().rss
                        user, line, run = description
                        processes[process.pid] = Seen(process.ppid(), user, None if fresh else busy, memory, line, run)
            except psutil.Error:
                # It has ended.
                continue
        self._known = descriptions
        return processes


@lru_cache(512)
def _user(uid: int) -> str:
    try:
        return sanitize(pwd.getpwuid(uid).pw_name, 32)
    except KeyError:
        return str(uid)


def _run(command: list[str]) -> str:
    """Returns the name of the run whose supervisor a command is, else its id; "" of any other."""
    if SUPERVISOR_MODULE not in command[:-1]:
        return ""
    run = RunDir(Path(command[command.index(SUPERVISOR_MODULE) + 1]))
    return sanitize(read_about(run)[0].name or run.run_id, 60)


def _command(command: list[str]) -> str:
    if not command:
        return ""
    # The program's directory says little.
    return sanitize(shlex.join([os.path.basename(command[0]) or command[0], *command[1:]]), COMMAND_CHARACTERS)
