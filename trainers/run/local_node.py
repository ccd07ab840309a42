"""What a run has on one machine: its ranks, their pipes and logs, the sampler, the reaper, and a script's reports.

The supervisor has a node on its own machine; the agent on every other machine has one there. Both hear of what happens
as a `Sink`.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

import msgspec

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.division import devices_of
from tuiapp.trainers.config.files import open_own, write_atomically
from tuiapp.trainers.config.gpu_choice import pick
from tuiapp.trainers.config.machine import Machine, NotHereError, inspect_machine
from tuiapp.trainers.config.memory import jax_memory_words
from tuiapp.trainers.config.options import GPUS_VARIABLE, INTERVAL_S, ConfigError, telemetry_interval_s
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.contract import gpu_leases
from tuiapp.trainers.contract.events import Event, LogLine, Metrics, Phase, RankStarted
from tuiapp.trainers.contract.metrics import MAX_RANKS
from tuiapp.trainers.contract.orphans import kill_tagged
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.children import ChildProcess
from tuiapp.trainers.run.rank_end import OomWatch
from tuiapp.trainers.run.rank_environment import (
    Rendezvous,
    device_environment,
    rank_environment,
    script_environment,
    script_start,
)
from tuiapp.trainers.run.ranks import AttachedRank, Connection, LocalRank, Rank, RankProcess, Sink, Voter
from tuiapp.trainers.run.reactor import Reactor
from tuiapp.trainers.run.script_metrics import ScriptMetrics
from tuiapp.trainers.telemetry.handover import SamplerConfig
from tuiapp.trainers.telemetry.keeper import SamplerKeeper

_CREDENTIALS = struct.Struct("3i")
"""`struct ucred`: pid, uid, gid (unix(7))."""
RESAMPLE_S = 1.0
"""Time from a rank's connection to sampling its process: others may follow."""


class StartError(Exception):
    """A rank's process could not be started."""

    def __init__(self, rank: int, cause: OSError) -> None:
        super().__init__(f"its process could not be started: {cause.strerror or cause}")
        self.rank, self.cause = rank, cause


class LocalNode:
    """One machine's part of a run; its processes carry `token`.

    A supervisor gives the node `plan` and `run`; ranks that nobody launched find the run by its file `address`, an
    agent's by the name of its socket, `listener`. Raises OSError if a script's ranks cannot be listened to.
    """

    def __init__(
        self,
        run: RunDir,
        plan: Plan,
        token: str,
        reactor: Reactor,
        sink: Sink,
        *,
        of_supervisor: bool = True,
        listener: str = "",
    ) -> None:
        self._run, self._plan, self._config, self._token = run, plan, plan.config, token
        self._reactor, self.sink = reactor, sink
        self.ranks: dict[int, LocalRank] = {}
        self.metrics = ScriptMetrics(self._config, run, plan.world_size)
        self._script = self.reporters = None
        if not BACKENDS[self._config.backend].builtin:
            self._script = script_start(run, plan)
            self.reporters = Reporters(run, run.address if of_supervisor else None, reactor, self, listener)
        who = "the supervisor" if of_supervisor else "this node's agent"
        without = f"training continues, but if {who} died too, its ranks would not end at once"
        # With the run's directory it sends the user's notice.
        directory = [str(run.path)] if of_supervisor else []
        command = module("tuiapp.trainers.run.reaper", str(os.getpid()), token, *directory)
        self._reaper = ChildProcess("reaper", command, run.supervisor_log, sink.on_event, without)
        self._sampler: SamplerKeeper | None = None
        self._resample_at: float | None = None
        self._oom = OomWatch(monotonic())
        self._gpus: tuple[str, ...] = ()
        self._leases: list[int] = []
        self._environment: dict[str, str] = {}
        """Variables that all ranks of the node have in their environment."""

    def start_reaper(self) -> None:
        """Starts the reaper: before any rank, so that none is ever without."""
        self._reaper.advance(monotonic())

    def start(
        self,
        rendezvous: Rendezvous,
        attempt: int,
        ranks: Sequence[int],
        resume_from: str = "",
        store: socket.socket | None = None,
    ) -> None:
        """Picks the GPUs, and starts these ranks and the sampler; rank 0 inherits `store`.

        Raises NotHereError if the machine has too few GPUs, StartError at the first rank that cannot be started.
        """
        self._pick_gpus(rendezvous.node)
        rendezvous = replace(rendezvous, gpus=self._gpus)
        if (fraction := self._plan.jax_memory_fraction) is not None:
            where = f"{socket.gethostname()}: " if rendezvous.node else ""
            self.sink.on_event(LogLine(rank=None, stream="run", text=where + jax_memory_words(fraction)))
        if self.reporters is None:
            self._environment = rank_environment(self._plan, self._token, rendezvous)
        else:
            variables = script_environment(self._run, self.reporters.name, self._plan, rendezvous, attempt)
            self._environment = {**variables, **device_environment(self._gpus, self._token)}
        if resume_from:
            self._environment[wire.RESUME_FROM] = resume_from
        try:
            for number, rank in enumerate(ranks):
                self._start_rank(rank, number, store if rank == 0 else None)
        finally:
            if self._plan.processes:
                self._start_sampler()

    def poll(self, now: float, *, read_logs: bool = True) -> None:
        """Does what is due; called about ten times a second. Logs that are not read keep what is in them."""
        self._reaper.advance(now)
        if self._resample_at is not None and now >= self._resample_at:
            self._resample_at = None
            self._start_sampler()
        if self._sampler is not None:
            self._sampler.advance(now)
        self._oom.poll(now)
        if read_logs:
            for rank in self.ranks.values():
                self._report(rank.new_lines())
        self._report(self.metrics.take(now))

    def read_pipes(self, on: bool) -> None:
        """Has the ranks' pipes read, or left: a rank whose pipe is not read thins what it reports, and trains on."""
        for rank in self.ranks.values():
            if not isinstance(rank, RankProcess):
                continue
            if not on:
                self._reactor.forget(rank.messages.fd)
            elif not rank.messages.ended:
                self._reactor.watch(rank.messages.fd, partial(self._drain, rank))

    def processes_beside(self) -> list[Connection]:
        """Processes that report as a rank which is another process."""
        return self.reporters.beside() if self.reporters is not None else []

    def finish_metrics(self) -> None:
        """Reports what a script's ranks, which have all ended, have written last."""
        self._report(self.metrics.finish())

    def close(self) -> list[int]:
        """Ends all but the reaper: sampler, listener, and what ranks have left behind; returns the pids of these."""
        if self._sampler is not None:
            self._sampler.end()
        if self.reporters is not None:
            self.reporters.close()
        left = kill_tagged(self._token)
        gpu_leases.let_go(self._leases)
        self._leases = []
        return left

    def dismiss_reaper(self) -> None:
        self._reaper.end()

    # What `Reporters` hears.

    def rank_of(self, rank: int) -> Rank | None:
        """Returns the process that a rank is, here or on another node; None without one."""
        return self.ranks.get(rank) or self.sink.rank_elsewhere(rank)

    def on_attached(self, rank: AttachedRank) -> None:
        self.ranks[rank.rank] = rank
        self._reactor.watch(rank.exit_fd, partial(self.on_exit, rank))
        self._resample_at = monotonic() + RESAMPLE_S
        self.sink.on_attached(rank)

    def on_messages(self, rank: Rank, messages: Sequence[wire.FromRank], via: Voter) -> None:
        """Takes what a rank reports, by its pipe or over a connection."""
        for message in messages:
            if isinstance(message, wire.Failed):
                rank.error = message.error
            elif isinstance(message, Phase) and message.phase == "done":
                rank.done = True
            elif isinstance(message, Metrics) and isinstance(rank, RankProcess):
                rank.reports += 1
        self.sink.on_messages(rank, [message for message in messages if not isinstance(message, wire.Failed)], via)

    def on_exit(self, rank: LocalRank) -> None:
        """Reads what is left of a rank that has ended, and reports its end."""
        if self.ranks.get(rank.rank) is not rank:
            return
        if isinstance(rank, RankProcess):
            self.on_messages(rank, rank.messages.read_all(), rank)
            self._reactor.forget(rank.messages.fd)
        if self.reporters is not None and rank.connection is not None:
            self.reporters.on_message(rank.connection, final=True)
        self._reactor.forget(rank.exit_fd)
        rank.wait()
        self._report(rank.new_lines(final=True))
        self._report(self.metrics.take(monotonic()))
        del self.ranks[rank.rank]
        failure = rank.failure(self._oom.oom_killed)
        rank.close()
        self.sink.on_rank_exited(rank, failure)

    def _pick_gpus(self, node: int) -> None:
        if self._config.launcher == "local":
            # At the launch.
            self._gpus = self._config.device_ids
            return
        machine = inspect_machine()
        with gpu_leases.choosing():
            machine = msgspec.structs.replace(machine, gpus=gpu_leases.with_leases(machine.gpus))
            self._gpus = self._pick_from(machine, node)
            self._leases = gpu_leases.take(self._gpus, self._run.run_id)
        self._plan = self._plan.on_gpus(machine, self._gpus)

    def _pick_from(self, machine: Machine, node: int) -> tuple[str, ...]:
        if self._config.platform != "cuda":
            return ()
        if self._config.device_ids:
            return self._config.device_ids
        wanted = devices_of(self._config, node)
        free = pick(machine.gpus, wanted)
        if len(free) < wanted:
            why = machine.gpu_problem or machine.gpu_limit or f"it has {len(free)}"
            raise NotHereError(f"{socket.gethostname()} must give {wanted} GPUs as node {node}: {why}.")
        return tuple(gpu.uuid for gpu in free)

    def _start_rank(self, rank: int, number: int, store: socket.socket | None) -> None:
        index = self._plan.ranks.index(rank)
        try:
            process = RankProcess(
                self._run, rank, self._environment, store, self._plan.python, self._script, index, number
            )
        except OSError as error:
            raise StartError(rank, error) from error
        self.ranks[rank] = process
        if self._script is not None:
            # What a built-in trainer's rank reports of itself.
            device, uuid = self._config.platform, ""
            if device == "cuda" and self._config.processes == "per-device":
                device, uuid = f"cuda:{number}", self._gpus[number]
            started = RankStarted(rank=rank, pid=process.pid, device=device, uuid=uuid)
            self.sink.on_messages(process, [started, Phase(rank=rank, phase="training")], process)
            self.metrics.listen(process)
        self._reactor.watch(process.messages.fd, partial(self._drain, process))
        self._reactor.watch(process.exit_fd, partial(self.on_exit, process))

    def _start_sampler(self) -> None:
        if self._sampler is not None:
            self._sampler.end()
        try:
            interval_s = telemetry_interval_s()
        except ConfigError:
            # Refused at launch; a running supervisor ignores it.
            interval_s = INTERVAL_S
        gpus = os.environ.get(GPUS_VARIABLE) or ",".join(self._gpus)
        if not gpus and self._config.platform == "cuda":
            # Somebody else started the ranks: they have the GPUs that its environment shows them.
            gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
        pids = {rank: process.pid for rank, process in self.ranks.items()}
        order = SamplerConfig(run_dir=str(self._run.path), ranks=pids, gpus=gpus, interval_s=interval_s)
        log = partial(open_own, self._run.supervisor_log, "ab")
        hands = self.sink.on_event, self._reactor.watch, self._reactor.forget
        self._sampler = SamplerKeeper(order, self._environment, log, *hands)

    def _drain(self, process: RankProcess) -> None:
        if self.ranks.get(process.rank) is not process:
            return  # it has ended a moment ago, in the same round
        self.on_messages(process, process.messages.read(), process)
        if process.messages.ended:
            self._reactor.forget(process.messages.fd)

    def _report(self, events: Sequence[Event]) -> None:
        for event in events:
            self.sink.on_event(event)


class Reporters:
    """Accepts the processes that report by `tuiapp.trainers.script.tracking`; the node hears of what they say.

    The socket's `name`, random if not given, is in the abstract namespace, so that neither the length of the run
    directory's path nor its file system matters. It is in the environment of the ranks that were launched, and in the
    file `address`, if any, which only the user may read, for those that somebody else started. Raises OSError if that
    cannot be written.
    """

    def __init__(self, run: RunDir, address: Path | None, reactor: Reactor, node: LocalNode, name: str) -> None:
        self._run, self._address, self._reactor, self._node = run, address, reactor, node
        self.name = name or f"tuiapp-{secrets.token_hex(16)}"
        self.connections: list[Connection] = []
        """The connections of processes that report as a rank."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(1024)
        self._socket.setblocking(False)
        if address is not None:
            write_atomically(address, self.name.encode())
        reactor.watch(self._socket.fileno(), self._accept)

    def beside(self) -> list[Connection]:
        """Returns the connections of processes that report as a rank which is another process."""
        rank_pids = {rank.pid for rank in self._node.ranks.values()}
        return [connection for connection in self.connections if connection.pid not in rank_pids]

    def on_message(self, connection: Connection, *, final: bool = False) -> None:
        """Reads a connection; with `final` its process has ended."""
        for message in connection.messages.read_all() if final else connection.messages.read():
            if isinstance(message, wire.Hello):
                self._attach(connection, message)
            elif (rank := self._node.rank_of(connection.rank)) is not None:
                self._take_from(rank, message, connection)
        if not connection.messages.ended and not final:
            return
        self._reactor.forget(connection.messages.fd)
        if connection in self.connections:
            self.connections.remove(connection)
            self._node.sink.on_left(connection)
        connection.close()
        rank = self._node.rank_of(connection.rank)
        if rank is not None and rank.connection is connection:
            rank.connection = None
            if not final and isinstance(rank, AttachedRank) and (rank.done or rank.exit_code):
                self._node.on_exit(rank)

    def close(self) -> None:
        self._reactor.forget(self._socket.fileno())
        self._socket.close()
        if self._address is not None:
            with suppress(OSError):
                self._address.unlink()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, user, _ = _CREDENTIALS.unpack(credentials)
            if user != os.getuid():
                accepted.close()
                continue
            accepted.setblocking(False)
            connection = Connection(accepted, pid)
            self._reactor.watch(connection.messages.fd, partial(self.on_message, connection))

    def _attach(self, connection: Connection, hello: wire.Hello) -> None:
        if self._node.sink.is_ending():
            # It comes too late to be ended with the others.
            connection.kill(signal.SIGTERM)
            return
        if not 0 <= hello.rank < MAX_RANKS:
            return
        rank = self._node.rank_of(hello.rank)
        if rank is None:
            try:
                self._node.on_attached(AttachedRank(self._run, hello.rank, connection))
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
            self._node.on_messages(rank, [message], connection)
