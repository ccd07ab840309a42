"""Accepts the ranks that report by `tuiapp.trainers.script.tracking`: each connects to its node's supervisor, or agent.

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
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tuiapp.trainers.config.files import write_atomically
from tuiapp.trainers.contract.events import Phase
from tuiapp.trainers.contract.metrics import MAX_RANKS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.ranks import AttachedRank, Connection, Rank
from tuiapp.trainers.run.reactor import Reactor

if TYPE_CHECKING:
    from tuiapp.trainers.run.local_node import LocalNode

_CREDENTIALS = struct.Struct("3i")
"""`struct ucred`: pid, uid, gid (unix(7))."""


class Listener:
    """`address`: the file that gets the socket's name, if any. Raises OSError if it cannot be written.

    `name` is random if not given.
    """

    def __init__(self, address: Path | None, name: str = "") -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.name = name or f"tuiapp-{secrets.token_hex(16)}"
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


class Reporters:
    """Listens from its construction on, as `Listener`, whose errors it raises; the node hears of what it reads."""

    def __init__(self, run: RunDir, address: Path | None, reactor: Reactor, node: LocalNode, name: str) -> None:
        self._run, self._reactor, self._node = run, reactor, node
        self._listener = Listener(address, name)
        self.name = self._listener.name
        """The socket's, for the ranks' environment."""
        self.connections: list[Connection] = []
        """Of processes that report as a rank."""
        reactor.watch(self._listener.fd, self._accept)

    def beside(self) -> list[Connection]:
        """The connections of processes that report as a rank which is another process."""
        own = {rank.pid for rank in self._node.ranks.values()}
        return [one for one in self.connections if one.pid not in own]

    def on_message(self, connection: Connection, *, final: bool = False) -> None:
        """Reads a connection; with `final` its process has ended."""
        for message in connection.messages.read_all() if final else connection.messages.read():
            if isinstance(message, wire.Hello):
                self._attach(connection, message)
            elif (rank := self._node.find(connection.rank)) is not None:
                self._take_from(rank, message, connection)
        if not connection.messages.ended and not final:
            return
        self._reactor.forget(connection.messages.fd)
        if connection in self.connections:
            self.connections.remove(connection)
            self._node.leave(connection)
        connection.close()
        rank = self._node.find(connection.rank)
        if rank is not None and rank.connection is connection:
            rank.connection = None
            if not final and isinstance(rank, AttachedRank) and (rank.done or rank.exit_code):
                self._node.on_exit(rank)

    def close(self) -> None:
        self._reactor.forget(self._listener.fd)
        self._listener.close()

    def _accept(self) -> None:
        while (connection := self._listener.accept()) is not None:
            self._reactor.watch(connection.messages.fd, partial(self.on_message, connection))

    def _attach(self, connection: Connection, hello: wire.Hello) -> None:
        if self._node.is_ending():
            # It comes too late to be ended with the others.
            connection.kill(signal.SIGTERM)
            return
        if not 0 <= hello.rank < MAX_RANKS:
            return
        rank = self._node.find(hello.rank)
        if rank is None:
            try:
                self._node.admit(AttachedRank(self._run, hello.rank, connection))
            except OSError:
                return
        elif rank.connection is None:
            rank.connection = connection
        connection.rank = hello.rank
        self.connections.append(connection)

    def _take_from(self, rank: Rank, message: wire.FromRank, connection: Connection) -> None:
        # A process that a rank starts may report as that rank too; its end is not the rank's.
        if isinstance(message, Phase | wire.Failed) and connection is not rank.connection:
            return
        if isinstance(message, wire.Failed):
            if isinstance(rank, AttachedRank):
                rank.exit_code, rank.error = message.exit_code, message.error
        else:
            self._node.take(rank, [message], connection)
