"""What the supervisor and its helpers say to each other: JSON lines over pipes, one pipe per direction and process.

A rank's pipe to the supervisor carries events and votes; the supervisor's pipe to a rank carries its part of the
agreement on a step, and to rank 0 which checkpoints the journal covers. Each pipe has one writer and one reader, so the
death of either shows as its end.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import msgspec

from trainers.contract.events import AnyEvent, PhaseName
from trainers.contract.strays import SUPERVISOR as SUPERVISOR
from trainers.contract.strays import TOKEN as TOKEN

EVENTS_FD = "TUIAPP_EVENTS_FD"
"""Environment variable: the descriptor on which a rank writes."""
CONTROL_FD = "TUIAPP_CONTROL_FD"
"""Environment variable: the descriptor from which a rank reads."""
STORE_FD = "TUIAPP_STORE_FD"
"""Environment variable: rank 0's rendezvous socket, bound and listening."""
RESUME_FROM = "TUIAPP_RESUME_FROM"
"""Environment variable: the directory of the checkpoint that this attempt goes on from; unset in the first."""
HEARTBEAT_S = 1.0
"""How often a rank tells how far it is."""

MAX_MESSAGE_BYTES = 16 << 20


class Propose(msgspec.Struct, frozen=True, tag="propose"):
    """Supervisor to rank: start no further step, and vote."""

    round: int
    """Comes back with the vote: a vote in a round that a later one has overtaken does not count."""


class Agreed(msgspec.Struct, frozen=True, tag="agreed"):
    """Supervisor to rank: the answer to the votes."""

    step: int
    """The highest that any rank has started."""
    stop: bool
    """No rank goes beyond it."""
    save: bool
    """All ranks save a checkpoint after it."""


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """Supervisor to rank 0: the journal holds a checkpoint's commit and all ranks' steps up to it."""

    step: int


class Vote(msgspec.Struct, frozen=True, tag="vote"):
    """Rank to supervisor: the last step it has started."""

    rank: int
    step: int
    round: int


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Rank to supervisor, once a second: it lives, and stands here. Not for the journal."""

    rank: int
    step: int
    """The last one it has started."""
    phase: PhaseName


ToRank: TypeAlias = Propose | Agreed | Recorded
FromRank: TypeAlias = AnyEvent | Vote | Heartbeat

_from_rank: msgspec.json.Decoder[FromRank] = msgspec.json.Decoder(FromRank)
_to_rank: msgspec.json.Decoder[ToRank] = msgspec.json.Decoder(ToRank)


def encode(message: msgspec.Struct) -> bytes:
    """One message as a line."""
    return msgspec.json.encode(message) + b"\n"


class LineReader:
    """Splits what comes over a non-blocking or blocking descriptor into decoded messages.

    Args:
        fd: Owned by the caller.
        decoder: Of one line. A line it refuses is dropped and counted.
    """

    def __init__(self, fd: int, decoder: msgspec.json.Decoder[Any]) -> None:
        self.fd = fd
        self.ended = False
        """True once the other side has closed, or died."""
        self.dropped = 0
        self._decoder = decoder
        self._rest = bytearray()

    def read(self, limit_bytes: int = 1 << 20) -> list[Any]:
        """The messages that are complete now, after at most one read of `limit_bytes`."""
        try:
            data = os.read(self.fd, limit_bytes)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return []
        return self._split(data)

    def read_all(self) -> list[Any]:
        """The messages that are complete now, of a non-blocking descriptor whose writer has died.

        A child of the writer may hold the descriptor open, so this does not wait for its end.
        """
        messages: list[Any] = []
        while not self.ended:
            try:
                data = os.read(self.fd, 1 << 20)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.ended = not data
            messages += self._split(data)
        return messages

    def _split(self, data: bytes) -> list[Any]:
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > MAX_MESSAGE_BYTES:
            self._rest = bytearray()
            self.dropped += 1
        messages = []
        for line in lines:
            try:
                messages.append(self._decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.dropped += 1
        return messages


def rank_messages(fd: int) -> LineReader:
    """The supervisor's end of a rank's (or the telemetry's) pipe."""
    return LineReader(fd, _from_rank)


def control_messages(fd: int) -> LineReader:
    """A rank's end of the supervisor's pipe."""
    return LineReader(fd, _to_rank)
