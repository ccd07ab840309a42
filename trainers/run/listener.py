"""Accepts the ranks that report by `trainers.script.tracking`: each connects to its node's supervisor, or agent.

The local socket's name is in the abstract namespace, so that neither the length of the run directory's path nor its
file system matters. It is in the environment of the ranks that were launched, and in the run directory's file
`address`, which only the user may read, for those that somebody else started.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from trainers.config.files import write_atomically
from trainers.contract.events import LogLine, RankFailed
from trainers.contract.process_identity import is_stopped
from trainers.contract.rundir import RunDir
from trainers.run import stacks, wire
from trainers.run.failures import RankError
from trainers.run.out_of_memory import hint

_CREDENTIALS = struct.Struct("3i")
"""`struct ucred`: pid, uid, gid (unix(7))."""


class Listener:
    """`address`: the file that gets the socket's name, if any. Raises OSError if it cannot be written."""

    def __init__(self, address: Path | None) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.name = f"tuiapp-{secrets.token_hex(16)}"
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(1024)
        self._socket.setblocking(False)
        if address is not None:
            write_atomically(address, self.name.encode())

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    def accept(self) -> Connection | None:
        """Returns the next connection of this user, None if there is none."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return None
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(credentials)
        if user != os.getuid():
            connection.close()
            return None
        connection.setblocking(False)
        return Connection(connection, pid)

    def close(self) -> None:
        self._socket.close()
        if self._address is not None:
            with suppress(OSError):
                self._address.unlink()


class Connection:
    """One reporting process; its first message says which rank it is."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._socket = connection
        self.pid = pid
        self.rank = -1
        self.agrees = False
        self.messages = wire.rank_messages(connection.fileno())

    def send(self, message: wire.ToRank) -> None:
        """Sends a message; does not wait for a process that is gone or does not read."""
        with suppress(OSError):
            self._socket.send(wire.encode(message))

    def kill(self, number: signal.Signals) -> None:
        """Signals its process, which exists as long as the connection is open."""
        with suppress(OSError):
            os.kill(self.pid, number)
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self._socket.close()


class AttachedRank:
    """A rank that somebody else started; known by its connection. Raises OSError if no descriptor is left."""

    def __init__(self, run: RunDir, rank: int, connection: Connection) -> None:
        self.rank = rank
        self.directory: Path = run.rank(rank)
        self.pid = connection.pid
        try:
            self.exit_fd = os.pidfd_open(connection.pid)
        except ProcessLookupError:
            # It has ended already, and what it sent is still to be read: a descriptor that is readable at once.
            self.exit_fd, other = os.pipe()
            os.close(other)
        self.connection: Connection | None = connection
        self.done = False
        self.exit_code: int | None = None
        """As the rank has reported its failure; its process may go on, to another run."""
        self.error: RankError | None = None

    def kill(self, number: signal.Signals) -> None:
        """Signals the process alone: its session may be the user's shell."""
        with suppress(OSError):
            signal.pidfd_send_signal(self.exit_fd, number)
            signal.pidfd_send_signal(self.exit_fd, signal.SIGCONT)

    def ask_stacks(self) -> bool:
        """Has it write its Python stacks; False if it would not."""
        return stacks.ask(self.connection.pid if self.connection else self.pid)

    def is_stopped(self) -> bool:
        return is_stopped(self.pid)

    def wait(self) -> None:
        """Its exit status is its parent's."""

    def new_lines(self, *, final: bool = False) -> list[LogLine]:
        """Its output is its parent's."""
        return []

    def failure(self, oom_killed: Callable[[], bool | None]) -> tuple[RankFailed, bool] | None:
        """Describes how it ended, if not by `finish`, and whether that looks like a consequence of another failure."""
        if self.done:
            return None
        record = self.error
        failed = RankFailed(
            rank=self.rank,
            hint=hint(oom_killed()) if record is None and not self.exit_code else "",
            exit_code=self.exit_code,
            error=record.error if record else "" if self.exit_code else "its process ended without tuiapp.finish()",
            traceback=record.traceback if record else "",
            step=0,
            mono=record.mono if record else monotonic(),
        )
        return failed, bool(record and record.consequence)

    def close(self) -> None:
        os.close(self.exit_fd)
