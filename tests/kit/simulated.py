"""Agents that start no ranks: they join a run as real ones do, and send what a test gives them."""

from __future__ import annotations

import secrets
import socket
import time
from typing import cast

from tuiapp.trainers.contract.events import AnyEvent, Event
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.channel import Channel
from tuiapp.trainers.run.handshake import greet
from tuiapp.trainers.run.wire import FromRank


class SimulatedAgent:
    """One node; joined once it is made. Raises OSError, RefusedError."""

    def __init__(self, host: str, port: int, secret: bytes) -> None:
        self.channel = Channel(wire.to_node, lambda fd: None)
        self.ranks: list[int] = []
        """Those that it has been asked to start."""
        self.finished = False
        """The supervisor has ended the run, or is gone."""
        connection, welcome = greet(host, port, secret, secrets.token_hex(16), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.node = welcome.node
        self.channel.attach(connection, welcome.received)

    def advance(self) -> None:
        """Hears what the supervisor says, and sends what waits."""
        for message in self.channel.read():
            match message:
                case wire.Begin():
                    self.ranks = list(message.ranks)
                case wire.Signal(rank, _):
                    if rank in self.ranks:
                        self.ranks.remove(rank)
                        self.channel.send(wire.RankExited(rank))
                case wire.Finish():
                    self.finished = True
        self.channel.confirmed = self.channel.received
        self.channel.advance(time.monotonic())
        self.finished |= not self.channel.connected

    def send_of_rank(self, rank: int, message: FromRank) -> None:
        self.channel.send(wire.FromRankOf(rank, message))

    def report(self, event: Event) -> None:
        self.channel.send(wire.Reported(cast(AnyEvent, event)))

    def leave(self) -> None:
        self.channel.detach()
