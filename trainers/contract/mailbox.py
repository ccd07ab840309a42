"""Requests to a run: small files in its `commands/`, which its supervisor polls.

A file works from another host that shares the file system, and across a restart of the dashboard; a signal does not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from tuiapp.trainers.config.files import write_atomically

Command: TypeAlias = Literal["stop", "stop-now", "checkpoint", "profile", "job-ends", "time-limit", "pruned"]
"""The last three stop a run as "stop" does: its own Slurm job ends, and a search has given it up."""


MOST_STEPS = 1000
"""Steps that one command may have profiled: their trace must fit into memory."""


def send(commands_dir: Path, command: Command, steps: int = 0) -> None:
    """Puts a command into a run's mailbox, "profile" with a number of steps. Raises OSError if it cannot be written."""
    # The name gives the order; the random part separates two senders.
    name = f"{time.time_ns():020d}-{os.urandom(2).hex()}.{command}{f'={steps}' * bool(steps)}"
    write_atomically(commands_dir / name, b"")


def take(commands_dir: Path) -> list[str]:
    """Takes all commands out of the mailbox, oldest first, "profile" as "profile=STEPS"; other files are removed."""
    try:
        with os.scandir(commands_dir) as entries:
            # Dot files are commands still being written.
            names = sorted(Path(entry.path) for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []
    commands: list[str] = []
    for path in names:
        try:
            path.unlink()
        except OSError:
            # Already gone, or a directory, or not ours to remove: a file that stays must not be obeyed repeatedly.
            continue
        command, equals, steps = path.suffix.removeprefix(".").partition("=")
        is_right = 1 <= int(steps) <= MOST_STEPS if steps.isdecimal() and steps.isascii() else not equals
        if command in get_args(Command) and is_right and bool(equals) == (command == "profile"):
            commands.append(path.suffix.removeprefix("."))
    return commands
