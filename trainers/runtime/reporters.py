"""The processes that report as ranks by `trainers.tracking`, whether the supervisor or a node's agent hears them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from trainers.contract.events import Phase
from trainers.contract.metrics import MAX_RANKS
from trainers.contract.rundir import RunDir
from trainers.runtime import wire
from trainers.runtime.listener import AttachedRank, Connection, Listener


class Rank(Protocol):
    pid: int
    connection: Connection | None
    """Of the process that reports as this rank first; those of others that do are not kept here."""


class Reporters:
    """Listens from its construction on, as `Listener`, whose errors it raises.

    `live` are the node's ranks. `admit` gets one that somebody else started, `take(rank, messages, connection)` what
    is reported, `leave` a connection that has ended, `bury` a rank that has finished although its process may do more,
    as a notebook does. `is_ending`: whether the ranks are being ended.
    """

    def __init__(
        self,
        run: RunDir,
        address: Path | None,
        live: Mapping[int, Rank],
        watch: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
        admit: Callable[[AttachedRank], None],
        take: Callable[[Any, list[wire.FromRank], Connection], None],
        leave: Callable[[Connection], None],
        bury: Callable[[AttachedRank], None],
        is_ending: Callable[[], bool],
    ) -> None:
        self._run, self._live, self._watch, self._forget = run, live, watch, forget
        self._admit, self._take, self._leave, self._bury, self._is_ending = admit, take, leave, bury, is_ending
        self._listener = Listener(address)
        self.name = self._listener.name
        """The socket's, for the ranks' environment."""
        self.connections: list[Connection] = []
        """Of processes that report as a rank."""
        watch(self._listener.fd, self._accept)

    def beside(self) -> list[Connection]:
        """The connections of processes that report as a rank which is another process."""
        own = {rank.pid for rank in self._live.values()}
        return [one for one in self.connections if one.pid not in own]

    def hear(self, connection: Connection, *, final: bool = False) -> None:
        """Reads a connection; with `final` its process has ended."""
        for message in connection.messages.read_all() if final else connection.messages.read():
            if isinstance(message, wire.Hello):
                self._attach(connection, message)
            elif (rank := self._live.get(connection.rank)) is not None:
                self._take_from(rank, message, connection)
        if not connection.messages.ended and not final:
            return
        self._forget(connection.messages.fd)
        if connection in self.connections:
            self.connections.remove(connection)
            self._leave(connection)
        connection.close()
        rank = self._live.get(connection.rank)
        if rank is not None and rank.connection is connection:
            rank.connection = None
            if not final and isinstance(rank, AttachedRank) and (rank.done or rank.exit_code):
                self._bury(rank)

    def close(self) -> None:
        self._forget(self._listener.fd)
        self._listener.close()

    def _accept(self) -> None:
        while (connection := self._listener.accept()) is not None:
            self._watch(connection.messages.fd, partial(self.hear, connection))

    def _attach(self, connection: Connection, hello: wire.Hello) -> None:
        if self._is_ending():
            # It comes too late to be ended with the others.
            connection.kill(signal.SIGTERM)
            return
        if not 0 <= hello.rank < MAX_RANKS:
            return
        rank = self._live.get(hello.rank)
        if rank is None:
            try:
                self._admit(AttachedRank(self._run, hello.rank, connection))
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
            self._take(rank, [message], connection)
