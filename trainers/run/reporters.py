"""The processes that report as ranks by `tuiapp.init`, whether the supervisor or a node's agent hears them."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.contract.events import Phase
from trainers.contract.metrics import MAX_RANKS
from trainers.contract.rundir import RunDir
from trainers.run import wire
from trainers.run.listener import AttachedRank, Connection, Listener
from trainers.run.reactor import Reactor

if TYPE_CHECKING:
    from trainers.run.local_node import LocalNode, LocalRank


class Reporters:
    """Listens from its construction on, as `Listener`, whose errors it raises; the node hears of what it reads."""

    def __init__(self, run: RunDir, address: Path | None, reactor: Reactor, node: LocalNode) -> None:
        self._run, self._reactor, self._node = run, reactor, node
        self._listener = Listener(address)
        self.name = self._listener.name
        """The socket's, for the ranks' environment."""
        self.connections: list[Connection] = []
        """Of processes that report as a rank."""
        reactor.watch(self._listener.fd, self._accept)

    def beside(self) -> list[Connection]:
        """The connections of processes that report as a rank which is another process."""
        own = {rank.pid for rank in self._node.ranks.values()}
        return [one for one in self.connections if one.pid not in own]

    def hear(self, connection: Connection, *, final: bool = False) -> None:
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
            self._reactor.watch(connection.messages.fd, partial(self.hear, connection))

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

    def _take_from(self, rank: LocalRank, message: wire.FromRank, connection: Connection) -> None:
        # A process that a rank starts may report as that rank too; its end is not the rank's.
        if isinstance(message, Phase | wire.Failed) and connection is not rank.connection:
            return
        if isinstance(message, wire.Failed):
            if isinstance(rank, AttachedRank):
                rank.exit_code, rank.error = message.exit_code, message.error
        else:
            self._node.take(rank, [message], connection)
