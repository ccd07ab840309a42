"""The other nodes of a run, as its supervisor sees them: it has their agents started, and they connect here.

Agents are started by OpenSSH, as the user has configured it, or in the run's own Slurm job. Over ssh each gets the
run's secret by its stdin, and tuiapp has to be installed on every host at the same path. A node that does not share the
runs directory keeps its ranks' files after the run; nothing else of ours stays.

The port and the secret are in the run's directory (`port`, `secret`), which only the user may read. An agent that is
silent is named at once, and lost for good after the run's `node_grace_s`.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep, time
from typing import TypeVar

import msgspec

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.division import devices_of_nodes
from tuiapp.trainers.config.files import open_own, read_end, write_atomically
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import ANY, read_ports
from tuiapp.trainers.contract.events import (
    PLACE,
    Alert,
    Checkpoint,
    DeviceSample,
    Event,
    Facts,
    FrameworkMemory,
    Held,
    HostSample,
    InitialWeights,
    LogLine,
    Metrics,
    Node,
    NodeState,
    Phase,
    Predictions,
    Profile,
    RankFailed,
    RankSample,
    RankStarted,
    Replicas,
    Sharding,
    Stacks,
    StopRequested,
    TelemetrySource,
    place_name,
)
from tuiapp.trainers.contract.metrics import MAX_RANKS
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.channel import Channel
from tuiapp.trainers.run.handed_checkpoint import AHEAD_BYTES, parts
from tuiapp.trainers.run.handshake import VERSION, Entrance, Greeting, Welcome
from tuiapp.trainers.run.rank_environment import bind_free
from tuiapp.trainers.run.ranks import RemoteRank, Sink
from tuiapp.trainers.run.reactor import Reactor
from tuiapp.trainers.state.messages import listed
from tuiapp.trainers.state.rank_state import MAX_NODES

E = TypeVar("E", bound=Event)

NAMED_S = 4.0
"""A node that says nothing for this long is named."""
FINISH_S = 2.0
FAILING_S = 3.0
"""How long a silent node is waited for once the run has failed, or is to end at once."""

_OF_RANKS = (
    Phase | RankStarted | Metrics | Sharding | Held | Replicas | InitialWeights | Checkpoint | Predictions | Profile
    | FrameworkMemory | Alert | Facts | Stacks | StopRequested | wire.Vote | wire.Heartbeat | wire.Hello | wire.Agrees
    | wire.Leaves
)  # fmt: skip
"""What a rank on another node may say."""
_OF_AGENTS = (
    LogLine | Alert | Metrics | DeviceSample | RankSample | HostSample | TelemetrySource | StopRequested
)  # fmt: skip
"""What an agent itself may say."""

SSH_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
"""ssh asks no question on a terminal that is not there, and notices a host that is gone."""
SSH_FAILED = 255
"""ssh's own exit code; any other is that of the command."""
MAX_SAID_BYTES = 4000


class Nodes:
    """Listens for agents from its construction on; raises OSError if it cannot.

    `sink` gets what happens on the nodes, as from the supervisor's own; events bear their node.
    """

    def __init__(self, run: RunDir, plan: Plan, address: str, reactor: Reactor, sink: Sink) -> None:
        self._run, self._plan, self.address, self._reactor, self._sink = run, plan, address, reactor, sink
        self._secret = secrets.token_hex(32).encode()
        self._links = {number: _Link(number, reactor.forget) for number in range(1, plan.config.nodes)}
        self._planned = {
            rank: number
            for number in range(plan.config.nodes)
            for first in plan.ranks_of(number)
            for rank in plan.reported_by(first)
        }
        """Rank → its node; ranks that somebody else has started are not in it."""
        for rank, number in self._planned.items():
            if number:
                self._links[number].numbers.add(rank)
        self.own: set[int] = set()
        """The ranks of the supervisor's own node that somebody else has started."""
        self._beginning: tuple[str, int, int, str] | None = None
        """The arguments of `begin`, once all agents are to start their ranks."""
        ports = read_ports(plan.config.master_port)
        # The ranks' rendezvous needs one, too.
        listener = bind_free(address, ports if len(ports) > 1 else ANY)
        listener.listen(128)
        self.port: int = listener.getsockname()[1]
        write_atomically(run.secret, self._secret + b"\n")
        write_atomically(run.port, f"{address}:{self.port}\n".encode())
        self._starters: list[SshAgent | SrunAgents] = [
            SshAgent(host, f"{address}:{self.port}", self._secret.decode(), run.path / f"agent-{number}.log", number)
            for number, host in enumerate(plan.config.hosts, 1)
        ]
        if plan.config.launcher == "slurm":
            self._starters.append(SrunAgents(run, devices_of_nodes(plan.config)))
        self._entrance = Entrance(listener, self._secret, reactor, self._welcome, self._join)

    def refusal(self) -> str:
        """Returns why a node will not join: ssh or srun could not start its agent; "" while all may."""
        return next(filter(None, (starter.refusal() for starter in self._starters)), "") if self.missing else ""

    @property
    def missing(self) -> int:
        """Returns how many nodes have not joined yet."""
        return sum(not link.session for link in self._links.values())

    @property
    def joined(self) -> int:
        return len(self._links) - self.missing

    @property
    def ranks(self) -> dict[int, RemoteRank]:
        """Returns the ranks of all other nodes that have not ended."""
        return {number: rank for link in self._links.values() for number, rank in link.ranks.items()}

    def place_of(self, rank: int) -> str:
        """Returns the number and host of the node that a rank, or a device, is on."""
        number = next((link.number for link in self._links.values() if rank in link.numbers), 0)
        return f"node {number}, {self._links[number].host if number else socket.gethostname()}"

    def unreachable(self) -> dict[int, str]:
        """Returns the ranks whose node is silent, each with the node's name."""
        return {
            rank: link.name for link in self._links.values() if link.silent_since is not None for rank in link.ranks
        }

    def begin(self, token: str, attempt: int, port: int, resume_from: str = "") -> None:
        """Has all agents start their ranks, whose rendezvous is at `port`; those that join later, too."""
        self._beginning = token, attempt, port, resume_from
        for link in self._links.values():
            self._begin(link, *self._beginning)

    def _begin(self, link: _Link, token: str, attempt: int, port: int, resume_from: str) -> None:
        numbers = list(self._plan.ranks_of(link.number))
        link.ranks = {rank: self._rank(link, rank) for rank in numbers}
        link.channel.send(
            wire.Begin(
                run_dir=os.fsencode(self._run.path),
                plan=msgspec.Raw(msgspec.json.encode(self._plan)),
                ranks=numbers,
                token=node_token(token, link.number),
                attempt=attempt,
                address=self.address,
                port=port,
                resume_from=os.fsencode(resume_from),
            )
        )

    def let_go(self) -> None:
        """Stops recording the ranks; they train on."""
        for link in self._links.values():
            link.ranks.clear()

    def advance(self, now: float, *, failing: bool, at_once: bool) -> None:
        """Pings agents, names those that are silent, and gives up those that stay so.

        `failing`: the run ends already, because a rank has failed; a silent node is then the likely cause. `at_once`:
        somebody has asked to end the ranks at once, which a silent node does not hear.
        """
        self._entrance.advance(now)
        lost: list[_Link] = []
        for link in self._links.values():
            if not link.session:
                continue
            self._hand(link)
            link.channel.advance(now)
            quiet = now - link.channel.last_seen > NAMED_S
            if not quiet and link.silent_since is not None:
                lasted, link.silent_since = now - link.silent_since, None
                text = f"{link.name} is connected again, after {lasted:.0f} s"
                self._note(link, "back")
                self._sink.on_event(Alert(kind="node", severity="info", node=link.number, text=text, ended=True))
            elif quiet and link.silent_since is None and (link.ranks or self._beginning is None):
                link.silent_since = link.channel.last_seen
                grace = f"{self._plan.config.node_grace_s:.0f} s"
                text = f"{link.name} is not connected; it is given up after {grace}"
                self._note(link, "silent")
                self._sink.on_event(Alert(kind="node", node=link.number, text=text))
            grace_s = FAILING_S if failing else self._plan.config.node_grace_s
            if at_once and link.ranks and now - link.channel.last_seen > FAILING_S:
                link.silent_since = link.silent_since or link.channel.last_seen
                lost.append(link)
            elif link.silent_since is not None and now - link.silent_since > grace_s:
                lost.append(link)
        if lost:
            self._lose(lost, now)

    def _hand(self, link: _Link) -> None:
        """Sends more of the checkpoint that a node has asked for."""
        try:
            while link.parts is not None and link.channel.kept_bytes < AHEAD_BYTES:
                link.channel.send(part := next(link.parts))
                if not part.file:
                    link.parts = None
        except OSError as error:
            link.parts = None
            self._fail(link, f"the checkpoint cannot be read for {link.name}: {error.strerror}", monotonic())

    def confirm(self) -> None:
        """Lets the agents forget all that was read: it is in the journal."""
        for link in self._links.values():
            link.channel.confirmed = link.channel.received

    def end(self) -> None:
        """Lets all agents end, and closes the port."""
        deadline = monotonic() + FINISH_S
        for link in self._links.values():
            link.channel.send(wire.Finish())
        while any(link.channel.connected for link in self._links.values()) and monotonic() < deadline:
            for link in self._links.values():
                link.channel.advance(monotonic())
                link.channel.read()
            sleep(0.02)
        for link in self._links.values():
            link.channel.detach()
        for starter in self._starters:
            starter.end()
        self._entrance.close()
        for path in (self._run.secret, self._run.port):
            path.unlink(missing_ok=True)

    def _welcome(self, greeting: Greeting) -> Welcome:
        """Answers an agent: which node it is, or why it is none."""
        link = self._find(greeting)
        if isinstance(link, str):
            return Welcome(refused=link)
        return Welcome(node=link.number, received=link.channel.received, grace_s=self._plan.config.node_grace_s)

    def _find(self, greeting: Greeting) -> _Link | str:
        """Returns the node that an agent is, or why it is none."""
        for link in self._links.values():
            if link.session == greeting.session:
                return link
        free = next((link for link in self._links.values() if not link.session), None)
        if self._plan.others is None and greeting.wanted:
            if greeting.wanted not in self._links:
                return f"there is no node {greeting.wanted} to join as, only {_numbers(self._links)}"
            free = self._links[greeting.wanted]
            if free.session:
                return f"node {greeting.wanted} has joined already"
        if self._plan.others is not None:
            if greeting.rank in self.own.union(*(link.numbers for link in self._links.values())):
                return f"rank {greeting.rank} is on another node: they are two jobs of one name"
            numbers = [number for number in range(1, MAX_NODES) if number not in self._links]
            if numbers:
                number = greeting.wanted if greeting.wanted in numbers else numbers[0]
                free = self._links[number] = _Link(number, self._reactor.forget)
        return free or "all nodes have joined already"

    def _join(self, connection: socket.socket, greeting: Greeting, node: int) -> None:
        link = self._links[node]
        first = not link.session
        link.session, link.host = greeting.session, greeting.host
        link.channel.attach(connection, greeting.received)
        self._reactor.watch(link.channel.fileno(), partial(self._on_messages, link))
        if first:
            self._note(link, "joined")
            if self._beginning is not None:
                self._begin(link, *self._beginning)

    def _on_messages(self, link: _Link) -> None:
        for message in link.channel.read():
            if why := self._fault(link, message):
                if not link.refused:
                    link.refused = True
                    text = f"{link.name} reports {why}, which is not its own: dropped"
                    self._sink.on_event(Alert(kind="node", severity="error", node=link.number, text=text))
                continue
            match message:
                case wire.FromRankOf(rank, content):
                    if (process := link.ranks.get(rank)) is not None:
                        mine = self._own(link, content) if isinstance(content, Event) else content
                        self._sink.on_messages(process, [mine], process)
                case wire.Reported(StopRequested() as request):
                    self._sink.on_event(self._own(link, request))
                case wire.Reported(Alert() as alert):
                    text = f"{link.name}: {alert.text}"
                    self._sink.on_event(self._own(link, msgspec.structs.replace(alert, text=text)))
                case wire.Reported(TelemetrySource() as source):
                    name = f"{source.source} on {link.name}"
                    self._sink.on_event(self._own(link, msgspec.structs.replace(source, source=name)))
                case wire.Reported(DeviceSample() as sample) if sample.uuid.startswith(PLACE):
                    uuid = place_name(sample.index, link.number)
                    self._sink.on_event(self._own(link, msgspec.structs.replace(sample, uuid=uuid)))
                case wire.Reported(event):
                    self._sink.on_event(self._own(link, event))
                case wire.RankAttached(rank):
                    link.numbers.add(rank)
                    link.ranks[rank] = self._rank(link, rank)
                    self._sink.on_attached(link.ranks[rank])
                case wire.RankStopped(rank, pid, stopped):
                    if (process := link.ranks.get(rank)) is not None:
                        process.pid, process.stopped = pid, stopped
                case wire.RankExited(rank, failed, consequence):
                    if (process := link.ranks.pop(rank, None)) is not None:
                        if failed is not None:
                            failed = self._own(link, msgspec.structs.replace(failed, rank=rank))
                        self._sink.on_rank_exited(process, (failed, consequence) if failed else None)
                case wire.NeedsCheckpoint() if self._beginning is not None and self._beginning[3]:
                    checkpoint = Path(self._beginning[3])
                    text = f"{link.name} does not share {self._run.path}: it is sent {checkpoint.name}"
                    self._sink.on_event(LogLine(rank=None, stream="run", text=text))
                    link.parts = parts(checkpoint)
                case wire.CannotStart(reason):
                    self._fail(link, f"{link.name} cannot start its ranks: {reason}", monotonic())

    def _fault(self, link: _Link, message: wire.FromNode) -> str:
        """Tells what is wrong with a message, by the plan: whoever knows the secret speaks for its own ranks alone."""
        match message:
            case wire.RankAttached(rank):
                taken = self._planned.keys() | self.own
                free = rank not in taken and not any(rank in other.numbers for other in self._links.values())
                return "" if rank in link.numbers or (free and 0 <= rank < MAX_RANKS) else f"rank {rank}"
            case wire.FromRankOf(rank, content):
                allowed, ranks = isinstance(content, _OF_RANKS), [rank, getattr(content, "rank", None)]
            case wire.Reported(content):
                allowed, ranks = isinstance(content, _OF_AGENTS), [getattr(content, "rank", None)]
            case _:
                return ""
        if not allowed:
            return f"the event {type(content).__name__}"
        return next((f"rank {rank}" for rank in ranks if rank is not None and rank not in link.numbers), "")

    def _rank(self, link: _Link, rank: int) -> RemoteRank:
        # Ranks of a script take part in agreements once they say so.
        return RemoteRank(rank, link.channel, agrees=BACKENDS[self._plan.config.backend].builtin)

    def _own(self, link: _Link, event: E) -> E:
        """Makes a decoded event, which nobody else has yet, one of this machine's clocks and of its node."""
        mono = event.mono - link.channel.ahead_s
        # In place: a copy costs more than half of what decoding does.
        for name, value in (("node", link.number), ("mono", mono), ("time", time() - (monotonic() - mono))):
            msgspec.structs.force_setattr(event, name, value)
        return event

    def _lose(self, lost: list[_Link], now: float) -> None:
        # A switch that fails takes several nodes: all are named, whichever is given up first.
        unreachable = [link.name for link in self._links.values() if link.silent_since is not None]
        have = "has" if len(unreachable) == 1 else "have"
        for link in lost:
            link.channel.detach()
            self._note(link, "lost")
            since = link.silent_since or now
            self._fail(link, f"{listed(unreachable)} {have} been out of reach for {now - since:.0f} s", since)

    def _fail(self, link: _Link, why: str, since: float) -> None:
        link.silent_since = None
        ranks, link.ranks = link.ranks, {}
        for process in ranks.values():
            failed = RankFailed(rank=process.rank, node=link.number, error=why, mono=since, lost=True)
            self._sink.on_rank_exited(process, (failed, False))

    def _note(self, link: _Link, state: NodeState) -> None:
        self._sink.on_event(Node(node=link.number, host=link.host, state=state))


class _Link:
    """Another node and its agent; `channel` outlives connections."""

    def __init__(self, number: int, forget: Callable[[int], None]) -> None:
        self.number = number
        self.channel = Channel(wire.from_node, forget)
        self.host = ""
        self.session = ""
        self.silent_since: float | None = None
        self.ranks: dict[int, RemoteRank] = {}
        self.numbers: set[int] = set()
        """Ranks that the node may speak for: by the plan, and those of processes that no agent has started."""
        self.parts: Iterator[wire.Part] | None = None
        """The parts that are left of the checkpoint which the node is being given."""
        self.refused = False
        """Whether the node has reported what no node may, which was noted."""

    @property
    def name(self) -> str:
        return f"node {self.number} ({self.host})"


class SshAgent:
    """Starts a node's agent on a host; what it and ssh say goes into `log`. Raises OSError without ssh."""

    def __init__(self, host: str, address: str, secret: str, log: Path, node: int) -> None:
        self._host, self._log = host, log
        command = shlex.join(module("tuiapp.trainers.run.node", address, str(node)))
        with open_own(log, "wb") as file:
            self._ssh = subprocess.Popen(
                ["ssh", *SSH_OPTIONS, host, f"exec {command}"], stdin=subprocess.PIPE, stdout=file, stderr=file
            )
        assert self._ssh.stdin is not None
        # If it has ended already, `refusal` says why.
        with suppress(BrokenPipeError):
            self._ssh.stdin.write(secret.encode() + b"\n")
            self._ssh.stdin.close()

    def refusal(self) -> str:
        """Returns why the agent has ended, and what to do about it; "" while it runs."""
        code = self._ssh.poll()
        if not code:
            return ""
        lines = read_end(self._log, 0, MAX_SAID_BYTES).split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")
        if code == SSH_FAILED:
            cure = f"; `ssh -o BatchMode=yes {self._host} true` must work on this machine"
        elif last.startswith("tuiapp: "):
            last, cure = last.removeprefix("tuiapp: "), ""
        else:
            cure = f"; tuiapp {VERSION} must be installed there for {sys.executable}"
        return f"the agent on {self._host} could not be started: {last}{cure}; see {self._log.name}"

    def end(self) -> None:
        self._ssh.terminate()
        self._ssh.wait()


class SrunAgents:
    """Starts an agent on each node but this, which is the first; `devices` says how many each has.

    Each reads address and secret from the run's directory. Raises OSError.
    """

    def __init__(self, run: RunDir, devices: Sequence[int]) -> None:
        count = len(devices) - 1
        command = [
            "srun",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
            f"--exclude={os.environ['SLURMD_NODENAME']}",
            "--kill-on-bad-exit=1",
        ]
        environment = dict(os.environ)
        if environment.pop("SLURM_GPUS", None) and (gpus := environment.get("SLURM_GPUS_ON_NODE")):
            # `--gpus` counts those of all nodes, and srun would ask as many of these.
            equal = len(set(devices)) == 1
            command.append(f"--gpus-per-node={gpus}" if equal else f"--gpus={sum(devices[1:])}")
        with open_own(run.supervisor_log, "ab") as file:
            self._srun = subprocess.Popen(
                [*command, *module("tuiapp.trainers.run.node", str(run.path))],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def refusal(self) -> str:
        """Returns why srun has ended; "" while it runs."""
        code = self._srun.poll()
        return f"the agents could not be started by srun (exit code {code}); see supervisor.log" if code else ""

    def end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._srun.wait(FINISH_S)
        self._srun.kill()
        self._srun.wait()


def node_token(token: str, node: int) -> str:
    """Returns the token that a node's processes carry: one machine may be several nodes, each with its own agent."""
    return f"{token[:-4]}{node:04x}"


def _numbers(nodes: Collection[int]) -> str:
    return f"{min(nodes)} to {max(nodes)}" if len(nodes) > 1 else str(min(nodes))
