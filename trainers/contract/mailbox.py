"""How a run is asked for something: small files in its `commands/`, which its supervisor polls.

A file works from another host that shares the file system, and across a restart of the dashboard; a signal does not.
"""

from __future__ import annotations

import os
import secrets
import time
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from trainers.config.files import write_atomically

Command: TypeAlias = Literal["stop", "stop-now", "checkpoint"]

MAX_FILES = 1000
"""Looked at in one call of `take`."""


def send(commands_dir: Path, command: Command) -> None:
    """Put a command into a run's mailbox.

    Raises:
        OSError: the mailbox cannot be written.
    """
    # The name gives the order; the random part keeps two senders apart.
    name = f"{time.time_ns():020d}-{secrets.token_hex(2)}.{command}"
    write_atomically(commands_dir / name, b"")


def take(commands_dir: Path) -> list[Command]:
    """Take all commands out of the mailbox, oldest first; files that are no command are removed."""
    try:
        with os.scandir(commands_dir) as entries:
            # Dot files are commands still being written. Of a flood of files the next call takes more.
            found = islice((entry.path for entry in entries if not entry.name.startswith(".")), MAX_FILES)
            names = sorted(map(Path, found))
    except OSError:
        return []
    commands: list[Command] = []
    for path in names:
        try:
            path.unlink()
        except OSError:
            # Already gone, or a directory, or not ours to remove: what stays must not be obeyed again and again.
            continue
        commands += [command for command in get_args(Command) if path.suffix == f".{command}"]
    return commands
