"""How a run is asked for something: small files in its `commands/`, which its supervisor polls.

A file works from another host that shares the file system, and across a restart of the dashboard; a signal does not.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from trainers.contract.files import write_atomically

Command: TypeAlias = Literal["stop", "stop-now", "checkpoint"]


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
        # Dot files are commands still being written.
        names = sorted(path for path in commands_dir.iterdir() if not path.name.startswith("."))
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
