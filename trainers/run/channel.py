"""A connection between a run's supervisor and a node's agent: messages in order, each once, over TCP that may break.

Every line is `[number, confirmed, body]`: the sender numbers its messages from 1 and keeps each until the other side
has confirmed it; after a break both say what they have, and the rest is sent again. Lines numbered 0 are not kept:
pings, which also measure how far the other side's monotonic clock is ahead. `handshake` says who the sides are.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec

from tuiapp.trainers.contract.lines import encode_json

READ_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
MAX_KEPT_BYTES = 64 << 20
"""Most bytes of messages that the other side has not confirmed: a sender that can should wait beyond that."""
PING_S = 1.0
SILENT_S = 10.0
"""A connection on which nothing has come for this long is given up, and made again."""

_Line = tuple[int, int, msgspec.Raw]
_line: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    sent: float
    """On the sender's monotonic clock."""


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    sent: float
    """The time in the ping."""
    mono: float
    """On the answerer's monotonic clock."""


_unkept: msgspec.json.Decoder[Ping | Pong] = msgspec.json.Decoder(Ping | Pong)


class Channel:
    """One side; it outlives the connections that it is given by `attach`.

    `decoder` decodes the other side's messages; `forget` gets the descriptor of a connection that is given up, while it
    is still open. Nothing here waits: `read` takes what is there, `flush` sends what fits.
    """

    def __init__(self, decoder: msgspec.json.Decoder[Any], forget: Callable[[int], None]) -> None:
        self._decoder, self._forget_fd = decoder, forget
        self._socket: socket.socket | None = None
        self._numbered = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        """Messages sent over the present connection, or an earlier one, and not confirmed."""
        self._waiting: deque[tuple[int, bytes]] = deque()
        """Messages that wait to be sent."""
        self.kept_bytes = 0
        """Bytes of all messages that are kept."""
        self.received = 0
        """The number of the last message read."""
        self.confirmed = 0
        """The number up to which messages are safe on this side: set it once what was read needs no second sending."""
        self._acked = 0
        self._out = bytearray()
        self._rest = bytearray()
        self.last_seen = 0.0
        self._pinged = 0.0
        self._best_round_trip = float("inf")
        self.ahead_s = 0.0
        """How far the other side's monotonic clock is ahead of this one's."""

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def attach(self, connection: socket.socket, confirmed: int) -> None:
        """Continues over a new connection, whose other side has the messages up to `confirmed`."""
        self.detach()
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._forget(confirmed)
        self._waiting.extendleft(reversed(self._kept))
        self._kept.clear()
        self._rest.clear()
        self.last_seen, self._pinged = monotonic(), 0.0
        self._best_round_trip = float("inf")
        self.flush()

    def detach(self) -> None:
        """Gives the connection up; messages are kept for the next."""
        if self._socket is not None:
            self._forget_fd(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._out.clear()

    def send(self, message: msgspec.Struct) -> None:
        """Sends a message, now or over a later connection."""
        body = encode_json(message)
        self._numbered += 1
        self._waiting.append((self._numbered, body))
        self.kept_bytes += len(body)

    def advance(self, now: float) -> None:
        """Pings, sends what waits, and gives up a connection that has been silent too long."""
        if self._socket is None:
            return
        if now - self.last_seen > SILENT_S:
            self.detach()
            return
        if now - self._pinged >= PING_S:
            self._pinged = now
            self._out += self._encode(0, msgspec.json.encode(Ping(monotonic())))
        elif self.confirmed - self._acked > 200:
            self._out += self._encode(0, msgspec.json.encode(Ping(monotonic())))
        self.flush()

    def flush(self) -> None:
        while self._socket is not None:
            while self._waiting and len(self._out) < READ_BYTES:
                self._kept.append(message := self._waiting.popleft())
                self._out += self._encode(*message)
            if not self._out:
                return
            try:
                sent = self._socket.send(memoryview(self._out)[:READ_BYTES])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.detach()
                return
            del self._out[:sent]

    def read(self) -> list[Any]:
        """Returns the messages that have come, after at most one read of `READ_BYTES`; detaches at the end."""
        if self._socket is None:
            return []
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if not data:
            self.detach()
            return []
        self.last_seen = monotonic()
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self.detach()
            return []
        messages = []
        try:
            for line in lines:
                number, confirmed, body = _line.decode(line)
                self._forget(confirmed)
                if number == 0:
                    self._take_unkept(_unkept.decode(body))
                elif number == self.received + 1:
                    messages.append(self._decoder.decode(body))
                    self.received = number
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # A damaged line: it is asked for again over the next connection.
            self.detach()
        return messages

    def _take_unkept(self, message: Ping | Pong) -> None:
        if isinstance(message, Ping):
            self._out += self._encode(0, msgspec.json.encode(Pong(message.sent, monotonic())))
            return
        round_trip = self.last_seen - message.sent
        # The shortest round trip leaves the least doubt; it ages, because clocks drift apart.
        self._best_round_trip *= 1.01
        if 0 <= round_trip <= self._best_round_trip:
            self._best_round_trip = round_trip
            self.ahead_s = message.mono - (message.sent + self.last_seen) / 2

    def _encode(self, number: int, body: bytes) -> bytes:
        self._acked = self.confirmed
        return b"[%d,%d,%b]\n" % (number, self.confirmed, body)

    def _forget(self, confirmed: int) -> None:
        while self._kept and self._kept[0][0] <= confirmed:
            self.kept_bytes -= len(self._kept.popleft()[1])
