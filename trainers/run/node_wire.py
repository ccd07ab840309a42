"""What a run's supervisor and a node's agent say to each other over a `Channel`, once each knows the other."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tuiapp.trainers.contract.events import AnyEvent, RankFailed
from tuiapp.trainers.run.wire import FromRank, ToRank


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """Start these ranks."""

    run_dir: bytes
    """Where the run's directory is on the first node; on this one too, if its file system is shared."""
    plan: msgspec.Raw
    """As in `plan.json`."""
    ranks: list[int]
    token: str
    attempt: int
    address: str
    """Of the ranks' rendezvous."""
    port: int
    resume_from: bytes = b""
    """The directory of a checkpoint on the first node; b"" for none."""


class Part(msgspec.Struct, frozen=True, tag="part"):
    """The next bytes of a file of the checkpoint that a node has asked for; without a name: that was all."""

    file: str
    data: bytes


class ToRankOf(msgspec.Struct, frozen=True, tag="to-rank"):
    rank: int
    message: ToRank


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Signal a rank; with `whole` its whole session."""

    rank: int
    number: int


class AskStacks(msgspec.Struct, frozen=True, tag="stacks"):
    """Have a rank write its Python stacks, and send them as an event of the rank: without text if it writes none."""

    rank: int


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """Everything is recorded: the agent ends, and with it whatever it has started."""


class FromRankOf(msgspec.Struct, frozen=True, tag="from-rank"):
    rank: int
    message: FromRank


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """An event of the agent's own: a sample, an alert, a line of a log."""

    event: AnyEvent


class RankAttached(msgspec.Struct, frozen=True, tag="attached"):
    """A process that no agent has started reports as this rank."""

    rank: int


class RankStopped(msgspec.Struct, frozen=True, tag="stopped"):
    """A signal, or a debugger, has stopped a rank's process, or it continues."""

    rank: int
    pid: int
    stopped: bool


class RankExited(msgspec.Struct, frozen=True, tag="exited"):
    """A rank has ended; all it has sent came before."""

    rank: int
    failed: RankFailed | None = None
    is_consequence: bool = False
    """Of another rank's failure, by its looks."""


class NeedsCheckpoint(msgspec.Struct, frozen=True, tag="needs-checkpoint"):
    """The agent's machine does not have the checkpoint to resume from."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The agent cannot start the ranks."""

    reason: str


ToNode: TypeAlias = Begin | Part | ToRankOf | Signal | AskStacks | Finish
FromNode: TypeAlias = FromRankOf | Reported | RankAttached | RankStopped | RankExited | NeedsCheckpoint | Failed

to_node: msgspec.json.Decoder[ToNode] = msgspec.json.Decoder(ToNode)
from_node: msgspec.json.Decoder[FromNode] = msgspec.json.Decoder(FromNode)
