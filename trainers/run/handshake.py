"""How a run's supervisor and a node's agent come to know each other, before they speak over a `Channel`.

Each side proves by HMAC-SHA256 that it knows the run's secret, which itself is never sent. What follows is neither
encrypted nor signed: it is for a network that the user trusts, as the frameworks' own collectives are.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from time import monotonic

import msgspec

from tuiapp.trainers.run import wire
from tuiapp.trainers.run.reactor import Reactor

CONNECT_S = 3.0
MAX_UNAUTHENTICATED = 64
"""The most connections at once that have not yet proved the secret."""
PATIENCE_S = 1.0
"""Age from which, of too many connections that have not proved the secret, the oldest is closed; else the newest."""
try:
    VERSION = version("tuiapp")
    """Both sides must have the same."""
except PackageNotFoundError:
    VERSION = "from a checkout"
MAX_GREETING_BYTES = 4096
GREETING_S = 10.0
"""Time for either side to say who it is."""


class Challenge(msgspec.Struct, frozen=True):
    """Supervisor to whoever connects."""

    nonce: str
    version: str = VERSION


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """Agent to supervisor."""

    nonce: str
    proof: str
    host: str
    session: str
    """A random name, the same over all connections of one agent."""
    received: int = 0
    """The number of the last message it has."""
    wanted: int = 0
    """The number that its node has in the run, or in the job whose ranks somebody else has started; 0: any."""
    rank: int = -1
    """One of the ranks that somebody else has started on the node; -1 without."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """Supervisor to agent; with a reason in `refused` it closes the connection."""

    proof: str = ""
    node: int = 0
    received: int = 0
    grace_s: float = 0.0
    """How long the agent tries to reach the supervisor again before it ends its ranks."""
    refused: str = ""


def prove(secret: bytes, side: str, *nonces: str) -> str:
    """Proves that a side knows the secret: HMAC-SHA256 over its name and both sides' nonces, in hexadecimal."""
    return hmac.new(secret, "|".join((side, *nonces)).encode(), "sha256").hexdigest()


def is_proved(secret: bytes, proof: str, side: str, *nonces: str) -> bool:
    """Tells whether a proof is the right one; takes as long for a wrong one."""
    return hmac.compare_digest(prove(secret, side, *nonces).encode(), proof.encode(errors="replace"))


class RefusedError(Exception):
    """The supervisor refuses this node, or is not the one that knows the secret."""


class Entrance:
    """The supervisor's side: it accepts on `listener`, and hands on the connections that have proved the secret.

    `welcome` answers a greeting; if it refuses nothing, `join` gets the connection and the number of its node.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        reactor: Reactor,
        welcome: Callable[[Greeting], Welcome],
        join: Callable[[socket.socket, Greeting, int], None],
    ) -> None:
        self._listener, self._secret, self._reactor = listener, secret, reactor
        self._welcome, self._join = welcome, join
        self._unauthenticated: dict[int, tuple[socket.socket, str, float, bytearray]] = {}
        listener.setblocking(False)
        reactor.watch(listener.fileno(), self._accept)

    def advance(self, now: float) -> None:
        """Dismisses the connections that take too long."""
        for fd, (_, _, deadline, _) in list(self._unauthenticated.items()):
            if now > deadline:
                self._dismiss(fd)

    def close(self) -> None:
        self._reactor.forget(self._listener.fileno())
        self._listener.close()
        for fd in list(self._unauthenticated):
            self._dismiss(fd)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
                oldest, (_, _, deadline, _) = next(iter(self._unauthenticated.items()))
                if deadline - monotonic() > GREETING_S - PATIENCE_S:
                    connection.close()
                    continue
                self._dismiss(oldest)
            connection.setblocking(False)
            nonce = secrets.token_hex(16)
            fd = connection.fileno()
            self._unauthenticated[fd] = connection, nonce, monotonic() + GREETING_S, bytearray()
            self._reactor.watch(fd, partial(self._read_handshake, fd))
            self._answer(connection, Challenge(nonce))

    def _read_handshake(self, fd: int) -> None:
        connection, nonce, _, received = self._unauthenticated[fd]
        try:
            data = connection.recv(MAX_GREETING_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received += data
        if not data or len(received) > MAX_GREETING_BYTES:
            self._dismiss(fd)
            return
        if not received.endswith(b"\n"):
            return
        try:
            greeting = msgspec.json.decode(received, type=Greeting)
            proved = is_proved(self._secret, greeting.proof, "agent", nonce, greeting.nonce)
        except (ValueError, RecursionError):
            # No JSON, no UTF-8: whoever that is has not proved anything yet.
            self._dismiss(fd)
            return
        welcome = self._welcome(greeting) if proved else Welcome(refused="the secret is wrong")
        if welcome.refused:
            self._answer(connection, welcome)
            self._dismiss(fd)
            return
        self._reactor.forget(fd)
        del self._unauthenticated[fd]
        proof = prove(self._secret, "supervisor", nonce, greeting.nonce)
        self._answer(connection, msgspec.structs.replace(welcome, proof=proof))
        self._join(connection, greeting, welcome.node)

    def _answer(self, connection: socket.socket, message: msgspec.Struct) -> None:
        with suppress(OSError):
            connection.send(wire.encode(message))

    def _dismiss(self, fd: int) -> None:
        connection, *_ = self._unauthenticated.pop(fd)
        self._reactor.forget(fd)
        connection.close()


def greet(
    host: str, port: int, secret: bytes, session: str, received: int, wanted: int = 0, rank: int = -1
) -> tuple[socket.socket, Welcome]:
    """Connects to a supervisor and proves the secret; both sides do. Raises OSError, RefusedError."""
    connection = socket.create_connection((host, port), timeout=CONNECT_S)
    try:
        connection.settimeout(GREETING_S)
        challenge = msgspec.json.decode(_read_line(connection), type=Challenge)
        if challenge.version != VERSION:
            both = f"tuiapp {VERSION} is on {socket.gethostname()}, {challenge.version} on {host}"
            raise RefusedError(f"{both}: install the same on both")
        nonce = secrets.token_hex(16)
        greeting = Greeting(
            nonce=nonce,
            proof=prove(secret, "agent", challenge.nonce, nonce),
            host=socket.gethostname(),
            session=session,
            received=received,
            wanted=wanted,
            rank=rank,
        )
        connection.sendall(wire.encode(greeting))
        welcome = msgspec.json.decode(_read_line(connection), type=Welcome)
        if welcome.refused:
            raise RefusedError(f"{host}:{port} refuses this node: {welcome.refused}")
        if not is_proved(secret, welcome.proof, "supervisor", challenge.nonce, nonce):
            raise RefusedError(f"{host}:{port} does not know the run's secret: it is not the run's supervisor")
    except (ValueError, RecursionError) as error:
        connection.close()
        raise RefusedError(f"{host}:{port} is no supervisor of a tuiapp run") from error
    except BaseException:
        connection.close()
        raise
    return connection, welcome


def _read_line(connection: socket.socket) -> bytes:
    """Reads a line, and no byte after it: what follows is the channel's."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            raise ConnectionResetError("the connection was closed")
        line += byte
        if len(line) > MAX_GREETING_BYTES:
            raise msgspec.DecodeError("too long")
    return bytes(line)
