"""One node's agent: starts this machine's ranks for a supervisor on another, and forwards all that they report.

    python -m tuiapp.trainers.run.node HOST:PORT
    python -m tuiapp.trainers.run.node RUN_DIR [NODE RANK]

It reads the run's secret from the file that `TUIAPP_SECRET_FILE` names, or from stdin; given the run's directory, which
this machine then shares, it finds address and secret there. Ranks, pipes, logs, samples and the reaper are those of a
run on one machine; only the supervisor is elsewhere. If the connection breaks the ranks train on, and the agent
connects again; after the run's `node_grace_s`, or once the supervisor is known to be gone, it ends those that it has
started. Ranks that somebody else has started report to the socket that `TUIAPP_AGENT_LISTENER` names; theirs is node
NODE of their job, and RANK is one of them.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import cast

import msgspec

from tuiapp.trainers.config.files import make_private, user_data
from tuiapp.trainers.config.machine import NotHereError, interface_of
from tuiapp.trainers.config.plan import Plan, write_plan
from tuiapp.trainers.contract.events import AnyEvent, Event, Stacks, StopRequested
from tuiapp.trainers.contract.rundir import LISTENER_VARIABLE, SECRET_VARIABLE, RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.channel import MAX_KEPT_BYTES, Channel
from tuiapp.trainers.run.disk_full_safe_stdio import make_stdio_disk_full_safe
from tuiapp.trainers.run.handed_checkpoint import HandedCheckpoint
from tuiapp.trainers.run.handshake import RefusedError, greet
from tuiapp.trainers.run.local_node import LocalNode, StartError
from tuiapp.trainers.run.rank_environment import Rendezvous
from tuiapp.trainers.run.ranks import Connection, Failure, LocalRank, Rank, RankProcess, Voter
from tuiapp.trainers.run.reactor import Reactor
from tuiapp.trainers.run.watchdog import LOOK_S, StackDump

TICK_S = 0.05
POLL_S = 0.1
RETRY_S = 0.5
FIRST_CONNECT_S = 120.0
"""How long the first connection is tried: Slurm starts the nodes in any order."""
SECRET_S = 1.0
"""How long the secret's file is waited for, once the run has listened: it is removed when the run ends."""
GONE_S = 2.0
"""A supervisor whose machine has refused connections for this long is gone: it never opens its port again."""


_VOTES = wire.Agrees | wire.Vote | wire.Leaves


class Agent:
    """`early`: the supervisor may not be there yet.

    `listener` is `LocalNode`'s; `wanted` and `rank` are `Greeting`'s.
    """

    def __init__(
        self, host: str, port: int, secret: bytes, *, early: bool, listener: str = "", wanted: int = 0, rank: int = -1
    ) -> None:
        self._early, self._listener, self._who = early, listener, (wanted, rank)
        self._host, self._port, self._secret = host, port, secret
        self._session = secrets.token_hex(16)
        self._reactor = Reactor()
        self._channel = Channel(wire.to_node, self._reactor.forget)
        self._number: int | None = None
        self._grace_s = FIRST_CONNECT_S
        self._lost_at = monotonic()
        self._refused_since: float | None = None
        self._retry_at = 0.0
        self._tried = False
        self._node: LocalNode | None = None
        """None before the supervisor has all ranks start."""
        self._handed: tuple[HandedCheckpoint, Callable[[Path], None]] | None = None
        """The checkpoint that this node is being given, and what starts the ranks from it."""
        self._ending = False
        self._dumps: list[tuple[int, StackDump]] = []
        self._looked = 0.0
        self._stopped: set[int] = set()
        self._paused = False
        self._signals: list[int] = []
        self._stopping = False
        self._code: int | None = None
        self._interface = ""

    def run(self) -> int:
        """Serves until all is recorded, or the supervisor cannot be reached any more; returns an exit code."""
        polled = 0.0
        while self._code is None:
            self._reactor.wait(TICK_S)
            now = monotonic()
            if self._channel.connected:
                self._channel.confirmed = self._channel.received
                self._channel.advance(now)
                self._lost_at = self._channel.last_seen
            else:
                self._connect(now)
            if now - polled >= POLL_S:
                polled = now
                self._poll(now)
        self._end()
        return self._code

    def note_signal(self, number: int, _: object) -> None:
        """Asks the supervisor to stop the run; a second signal ends this node's ranks."""
        self._signals.append(number)

    def _connect(self, now: float) -> None:
        if now < self._retry_at:
            return
        self._retry_at = now + RETRY_S
        try:
            connection, welcome = greet(
                self._host, self._port, self._secret, self._session, self._channel.received, *self._who
            )
        except RefusedError as error:
            self._give_up(str(error))
            return
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            if self._number is None and not refused and not self._tried:
                self._tried = True
                again = f"trying again for {FIRST_CONNECT_S:.0f} s"
                print(f"{self._host}:{self._port} does not answer yet: {_why(error)}; {again}", file=sys.stderr)
            self._refused_since = (self._refused_since or now) if refused else None
            if refused and now - (self._refused_since or now) > GONE_S and not (self._early and self._number is None):
                joined = self._number is not None
                gone = "is gone" if joined else f"does not listen on port {self._port}: has its run ended?"
                self._give_up(f"the supervisor on {self._host} {gone}")
            elif now - self._lost_at > self._grace_s:
                self._give_up(f"{self._host}:{self._port} was not reached for {self._grace_s:.0f} s: {_why(error)}")
            return
        if self._number is None:
            print(f"node {welcome.node}: joined {self._host}:{self._port}", file=sys.stderr)
        self._number = welcome.node
        self._grace_s, self._refused_since = welcome.grace_s, None
        self._interface = interface_of(connection.getsockname()[0])
        self._channel.attach(connection, welcome.received)
        self._reactor.watch(self._channel.fileno(), self._on_messages)

    def _give_up(self, why: str) -> None:
        print(f"tuiapp: {why}", file=sys.stderr)
        self._code = 1

    def _on_messages(self) -> None:
        for message in self._channel.read():
            match message:
                case wire.Begin():
                    self._begin(message)
                case wire.Part():
                    self._take_part(message)
                case wire.ToRankOf(rank, content) if rank in self._ranks:
                    self._ranks[rank].send(content)
                case wire.Signal(rank, number) if self._node is not None and rank in self._ranks:
                    self._ending = True
                    beside = [process for process in self._node.processes_beside() if process.rank == rank]
                    for process in (self._ranks[rank], *beside):
                        process.kill(signal.Signals(number))
                case wire.AskStacks(rank) if rank in self._ranks:
                    self._dumps.append((rank, StackDump({rank: self._ranks[rank]}, monotonic())))
                case wire.Finish():
                    self._code = 0

    @property
    def _ranks(self) -> Mapping[int, LocalRank]:
        return self._node.ranks if self._node is not None else {}

    def _begin(self, begin: wire.Begin) -> None:
        """Starts the ranks; a supervisor that starts this node again first ended what was here."""
        plan = msgspec.json.decode(begin.plan, type=Plan)
        resume_from = Path(os.fsdecode(begin.resume_from))
        try:
            run = _run_directory(begin, plan)
            if begin.resume_from and os.fsencode(run.path) != begin.run_dir:
                self._handed = HandedCheckpoint(run, resume_from.name), partial(self._start, begin, run, plan)
                self._channel.send(wire.NeedsCheckpoint())
                return
        except (OSError, NotHereError) as error:
            self._channel.send(wire.CannotStart(_why(error)))
            return
        self._start(begin, run, plan, resume_from if begin.resume_from else None)

    def _take_part(self, part: wire.Part) -> None:
        if self._handed is None:
            return
        checkpoint, start = self._handed
        try:
            if checkpoint.take(part):
                self._handed = None
                start(checkpoint.path)
        except OSError as error:
            self._handed = None
            self._channel.send(wire.CannotStart(_why(error)))

    def _start(self, begin: wire.Begin, run: RunDir, plan: Plan, resume_from: Path | None) -> None:
        try:
            assert self._number is not None
            rendezvous = Rendezvous(begin.port, begin.address, self._number, self._interface)
            # Processes of two nodes may be on one machine: each agent ends its own.
            hands = self._reactor, self
            self._node = LocalNode(run, plan, begin.token, *hands, of_supervisor=False, listener=self._listener)
            self._node.start_reaper()
            self._node.start(rendezvous, begin.attempt, begin.ranks, str(resume_from or ""))
        except StartError as error:
            self._channel.send(wire.CannotStart(_why(error.cause)))
        except (OSError, NotHereError) as error:
            self._channel.send(wire.CannotStart(_why(error)))

    # What is heard of the node: `ranks.Sink`.

    def on_event(self, event: Event) -> None:
        self._channel.send(wire.Reported(cast(AnyEvent, event)))

    def on_messages(self, rank: Rank, messages: Sequence[wire.FromRank], via: Voter) -> None:
        # To the supervisor a rank is one process: it votes for those that it starts.
        beside = via is not rank and via is not rank.connection
        for message in messages:
            if not (beside and isinstance(message, _VOTES)):
                self._channel.send(wire.FromRankOf(rank.rank, message))

    def on_attached(self, rank: Rank) -> None:
        self._channel.send(wire.RankAttached(rank.rank))

    def on_left(self, connection: Connection) -> None:
        rank = self._ranks.get(connection.rank)
        if rank is not None and rank.connection is connection:
            self._channel.send(wire.FromRankOf(rank.rank, wire.Leaves(rank.rank, 0)))

    def rank_elsewhere(self, rank: int) -> None:
        """Returns None: only the supervisor knows the ranks of other nodes."""

    def is_ending(self) -> bool:
        return self._ending

    def on_rank_exited(self, rank: Rank, failure: Failure | None) -> None:
        if self._node is not None and not self._ranks:
            self._node.finish_metrics()
        failed, consequence = failure or (None, False)
        self._channel.send(wire.RankExited(rank.rank, failed, consequence))

    def _report_stacks(self, now: float) -> None:
        complete = [dump for dump in self._dumps if dump[1].is_complete(now)]
        for rank, dump in complete:
            if (process := self._ranks.get(rank)) is not None:
                for stacks in dump.read() or [Stacks(rank=rank, pid=process.pid, text="")]:
                    self._channel.send(wire.FromRankOf(rank, stacks))
        self._dumps = [dump for dump in self._dumps if dump not in complete]

    def _report_stopped(self) -> None:
        stopped = {rank for rank, process in self._ranks.items() if process.is_stopped()}
        for rank in (stopped ^ self._stopped) & self._ranks.keys():
            self._channel.send(wire.RankStopped(rank, self._ranks[rank].pid, rank in stopped))
        self._stopped = stopped

    def _poll(self, now: float) -> None:
        full = self._channel.kept_bytes > MAX_KEPT_BYTES
        if self._node is not None:
            self._node.poll(now, read_logs=not full)
            if full != self._paused:
                self._paused = full
                self._node.read_pipes(not full)
        self._report_stacks(now)
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._report_stopped()
        while self._signals:
            self._signals.pop()
            if self._stopping:
                for process in self._ranks.values():
                    process.kill(signal.SIGTERM)
            elif self._ranks:
                # Slurm preempts a job that has time left by a signal to its steps, as this one.
                who = "Slurm" if "SLURM_STEP_ID" in os.environ else f"SIGTERM on {socket.gethostname()}"
                self.on_event(StopRequested(save=True, by=who))
            else:
                self._give_up("ended by a signal")
            self._stopping = True

    def _end(self) -> None:
        for process in self._ranks.values():
            # Whoever started the others lets them train on.
            if isinstance(process, RankProcess):
                process.kill(signal.SIGKILL)
        if self._node is not None:
            self._node.close()
            self._node.dismiss_reaper()
        self._channel.detach()


def _run_directory(begin: wire.Begin, plan: Plan) -> RunDir:
    """Returns the run's directory, if this machine shares the first node's file system; else one of its own."""
    shared = RunDir(Path(os.fsdecode(begin.run_dir)))
    if os.path.isfile(shared.plan):
        return shared
    local = RunDir(user_data() / "nodes" / shared.run_id)
    try:
        for directory in map(local.rank, begin.ranks):
            make_private(directory)
        write_plan(local.plan, plan)
    except OSError as error:
        cure = "make room there, or set XDG_DATA_HOME to a directory that has some"
        raise NotHereError(f"{error.strerror or error}: {local.path}; {cure}") from error
    return local


def _why(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


def read_soon(path: Path, seconds: float = FIRST_CONNECT_S) -> str:
    """Reads a file that may still have to be written, or be on its way over NFS. Raises OSError."""
    deadline = monotonic() + seconds
    while True:
        try:
            return path.read_text().strip()
        except OSError:
            if monotonic() > deadline:
                raise
        sleep(0.1)


def main() -> int:
    """Serves one run."""
    make_stdio_disk_full_safe()
    # Slurm starts the nodes in any order; what an earlier attempt wrote may lie there.
    early = os.sep in sys.argv[1]
    file = os.environ.get(SECRET_VARIABLE)
    try:
        if early:
            run = RunDir(Path(sys.argv[1]))
            if not (address := read_soon(run.port)):
                print(f"tuiapp: the recorder of {run.run_id} takes no other nodes; its log says why", file=sys.stderr)
                return 1
            secret = read_soon(run.secret)
        else:
            address = sys.argv[1]
            secret = read_soon(Path(file), SECRET_S) if file else sys.stdin.readline().strip()
    except FileNotFoundError as error:
        print(f"tuiapp: {error.filename} is no longer there: the run has ended", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"tuiapp: the run's secret cannot be read: {error}", file=sys.stderr)
        return 1
    host, _, port = address.rpartition(":")
    listener = os.environ.pop(LISTENER_VARIABLE, "")
    # Nodes that srun starts have its order, and are those after the first.
    slurms = int(os.environ.get("SLURM_NODEID", -1)) + 1 if early else 0
    wanted, rank = [*map(int, sys.argv[2:]), *(slurms, -1)[len(sys.argv) - 2 :]]
    agent = Agent(
        host.strip("[]"), int(port), secret.encode(), early=early, listener=listener, wanted=wanted, rank=rank
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, agent.note_signal)
    return agent.run()


if __name__ == "__main__":
    sys.exit(main())
