"""Messages between a run's processes.

A rank and its supervisor send JSON lines over pipes, one pipe per direction and process. A rank's pipe to the
supervisor carries events and votes; the supervisor's pipe to a rank carries its part of the agreement on a step, to
rank 0 which checkpoints the journal covers, and in a hang the request for its collectives. Each pipe has one writer and
one reader, so the death of either shows as its end. A supervisor and a node's agent, once each knows the other, send
theirs over a `Channel`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tuiapp.trainers.contract.events import AnyEvent, PhaseName, RankFailed
from tuiapp.trainers.contract.lines import LineReader, encode_line
from tuiapp.trainers.contract.orphans import SUPERVISOR as SUPERVISOR
from tuiapp.trainers.contract.orphans import TOKEN as TOKEN
from tuiapp.trainers.run.rank_end import RankError

EVENTS_FD = "TUIAPP_EVENTS_FD"
"""Environment variable: the descriptor on which a rank writes."""
CONTROL_FD = "TUIAPP_CONTROL_FD"
"""Environment variable: the descriptor from which a rank reads."""
STORE_FD = "TUIAPP_STORE_FD"
"""Environment variable: rank 0's rendezvous socket, bound and listening."""
RESUME_FROM = "TUIAPP_RESUME_FROM"
"""Environment variable: the directory of the checkpoint that this attempt resumes from; unset in the first."""
RUN_DIR = "TUIAPP_RUN_DIR"
"""Environment variable: the run directory to which a script's ranks report."""
LISTENER = "TUIAPP_LISTENER"
"""Environment variable: the name of the socket to which they connect; unset where somebody else started them."""
PYTHON = "TUIAPP_PYTHON"
"""Environment variable: the supervisor's interpreter, for a rank that runs in another one."""
STOP_OF = "the stop of "
"""Begins the source of a stop that a script's further run takes over from the launched one, whose id follows."""
HEARTBEAT_S = 1.0


class Propose(msgspec.Struct, frozen=True, tag="propose"):
    """Supervisor to rank: start no further step, and vote."""

    round: int
    """Returned with the vote: votes of an overtaken round do not count."""


class Agreed(msgspec.Struct, frozen=True, tag="agreed"):
    """Supervisor to rank: the result of the vote."""

    step: int
    """The highest that any rank has started."""
    stop: bool
    save: bool
    profile: int = 0
    """Number of steps after it that are profiled."""
    due: bool = False
    """A checkpoint is saved after the next epoch that ends later."""


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """Supervisor to rank 0: the journal holds a checkpoint's commit and all ranks' steps up to it."""

    step: int


class Say(msgspec.Struct, frozen=True, tag="say"):
    """Supervisor to a rank that somebody else has started: what whoever did so should read."""

    text: str


class TellStacks(msgspec.Struct, frozen=True, tag="tell_stacks"):
    """Supervisor to rank: the run hangs; write where this rank stands, and which collectives it has begun."""


class Vote(msgspec.Struct, frozen=True, tag="vote"):
    """Rank to supervisor: the last step it has started."""

    rank: int
    step: int
    round: int


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Rank to supervisor, once a second: it is alive, at this step. Not for the journal."""

    rank: int
    step: int
    phase: PhaseName


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message of a rank that reports by `tuiapp.trainers.script.tracking`."""

    rank: int


class Agrees(msgspec.Struct, frozen=True, tag="agrees"):
    """Rank to supervisor: from now on it asks at each step whether to stop or save, and so takes part in votes."""

    rank: int


class Leaves(msgspec.Struct, frozen=True, tag="leaves"):
    """Rank to supervisor: it asks no more."""

    rank: int
    step: int
    """The last it has started, as in `Vote`."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Rank to supervisor: it has failed."""

    rank: int
    exit_code: int
    error: RankError | None = None


ToRank: TypeAlias = Propose | Agreed | Recorded | Say | TellStacks
FromRank: TypeAlias = AnyEvent | Vote | Heartbeat | Hello | Agrees | Leaves | Failed


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """Supervisor to agent: start these ranks."""

    run_dir: bytes
    """Where the run's directory is on the first node; on this one too, if its file system is shared."""
    plan: msgspec.Raw
    """The plan as in `plan.json`."""
    ranks: list[int]
    token: str
    attempt: int
    address: str
    """The address of the ranks' rendezvous."""
    port: int
    resume_from: bytes = b""
    """The directory of a checkpoint on the first node; b"" for none."""


class Part(msgspec.Struct, frozen=True, tag="part"):
    """Supervisor to agent: the next bytes of a file of the checkpoint that it needs; without a name: that was all."""

    file: str
    data: bytes


class ToRankOf(msgspec.Struct, frozen=True, tag="to-rank"):
    rank: int
    message: ToRank


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Supervisor to agent: signal a rank."""

    rank: int
    number: int


class AskStacks(msgspec.Struct, frozen=True, tag="stacks"):
    """Supervisor to agent: have a rank write its Python stacks.

    The agent sends them as an event of the rank, without text if it writes none.
    """

    rank: int


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """Supervisor to agent: everything is recorded, the agent ends, and with it whatever it has started."""


class FromRankOf(msgspec.Struct, frozen=True, tag="from-rank"):
    rank: int
    message: FromRank


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """Agent to supervisor: an event of its own, a sample, an alert, a line of a log."""

    event: AnyEvent


class RankAttached(msgspec.Struct, frozen=True, tag="attached"):
    """Agent to supervisor: a process that no agent has started reports as this rank."""

    rank: int


class RankStopped(msgspec.Struct, frozen=True, tag="stopped"):
    """Agent to supervisor: a signal, or a debugger, has stopped a rank's process, or it continues."""

    rank: int
    pid: int
    stopped: bool


class RankExited(msgspec.Struct, frozen=True, tag="exited"):
    """Agent to supervisor: a rank has ended; all it has sent came before."""

    rank: int
    failed: RankFailed | None = None
    is_consequence: bool = False
    """Whether it looks like a consequence of another rank's failure."""


class NeedsCheckpoint(msgspec.Struct, frozen=True, tag="needs-checkpoint"):
    """Agent to supervisor: its machine does not have the checkpoint to resume from."""


class CannotStart(msgspec.Struct, frozen=True, tag="failed"):
    """Agent to supervisor: it cannot start the ranks."""

    reason: str


ToNode: TypeAlias = Begin | Part | ToRankOf | Signal | AskStacks | Finish
FromNode: TypeAlias = FromRankOf | Reported | RankAttached | RankStopped | RankExited | NeedsCheckpoint | CannotStart

encode = encode_line

_from_rank: msgspec.json.Decoder[FromRank] = msgspec.json.Decoder(FromRank)
_to_rank: msgspec.json.Decoder[ToRank] = msgspec.json.Decoder(ToRank)
to_node: msgspec.json.Decoder[ToNode] = msgspec.json.Decoder(ToNode)
from_node: msgspec.json.Decoder[FromNode] = msgspec.json.Decoder(FromNode)


def rank_messages(fd: int) -> LineReader:
    """Reads the supervisor's end of a rank's pipe."""
    return LineReader(fd, _from_rank)


def control_messages(fd: int) -> LineReader:
    """Reads a rank's end of the supervisor's pipe."""
    return LineReader(fd, _to_rank)
