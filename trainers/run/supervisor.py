"""One run's supervisor: starts the ranks, drains what they report into the journal, ends them.

    python -m tuiapp.trainers.run.supervisor RUN_DIR [LOCK_FD CHECKPOINT [NOTE…]]

Given a checkpoint's name, the run resumes from it in a further attempt, under the lock that its starter took and passes
on as an open descriptor; notes say what was wrong with newer checkpoints. The name is "" for a script, which saves its
own.

A script's ranks report over a socket (`local_node.Reporters`). If its plan has no processes, somebody else starts them:
the supervisor then only records those that connect, and ends when they have ended. If they are on several nodes, the
agents of the others may join at any time.

A single thread waits for whichever comes first: a message, the end of a process, a command, a deadline. No reader of
the run, and no rank, can block it. It ends once all ranks have ended; the journal's last event says how.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from time import monotonic

from msgspec.structs import replace

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.division import devices_of_nodes
from tuiapp.trainers.config.files import write_atomically
from tuiapp.trainers.config.machine import NotHereError, interface_of, own_address
from tuiapp.trainers.config.mirror import OFF
from tuiapp.trainers.config.plan import Plan, read_plan
from tuiapp.trainers.config.run_config import read_ports, to_toml_values
from tuiapp.trainers.config.slurm import slurm_job
from tuiapp.trainers.contract.events import (
    Alert,
    Checkpoint,
    CheckpointRequested,
    Event,
    LogLine,
    Metrics,
    Phase,
    PhaseName,
    ProfileRequested,
    RankFailed,
    RunEnded,
    RunStarted,
    Stacks,
    StopRequested,
    Summary,
)
from tuiapp.trainers.contract.manifest import CheckpointDir, read_checkpoint
from tuiapp.trainers.contract.orphans import kill_tagged
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import note_started, start_notice
from tuiapp.trainers.run import disk_full_safe_stdio, wire
from tuiapp.trainers.run.children import ChildProcess
from tuiapp.trainers.run.host_bound import HostBound
from tuiapp.trainers.run.journal_keeper import JournalKeeper
from tuiapp.trainers.run.local_node import LocalNode, StartError
from tuiapp.trainers.run.nodes import Nodes, node_token
from tuiapp.trainers.run.rank_end import first_cause, left_early
from tuiapp.trainers.run.rank_environment import LOOPBACK, Rendezvous, bind_free, bind_rendezvous
from tuiapp.trainers.run.ranks import AttachedRank, Connection, Failure, Rank, RemoteRank, Voter
from tuiapp.trainers.run.reactor import SIGNALS, Reactor, Requests
from tuiapp.trainers.run.teardown import Agreement, Teardown
from tuiapp.trainers.run.watchdog import Watchdog
from tuiapp.trainers.state.messages import describe_failure, listed
from tuiapp.trainers.state.status import last_attempt

TICK_S = 0.05
POLL_S = 0.1
FIRST_RANK_S = 30.0
"""Time for the first rank to connect, if somebody else starts them."""
LATE_RANK_S = 2.0
"""Time for a rank that is still missing to connect after the others have ended."""
SAY_WAITING_S = 600.0
BETWEEN_SAVES_S = 30.0
"""Time from one checkpoint to the next, where nobody has said how many epochs."""
APART_S = 60.0
"""Time for the nodes of a job that somebody else has started to join."""


class Supervisor:
    """Runs one run to its end; `lock` is the descriptor that holds the run's lock."""

    def __init__(self, run: RunDir, plan: Plan, resumed: CheckpointDir | None = None, lock: int | None = None) -> None:
        self._run, self._plan, self._config = run, plan, plan.config
        self._is_script = not BACKENDS[self._config.backend].builtin
        self._token = node_token(f"{run.run_id}-{secrets.token_hex(8)}", 0)
        self._started = monotonic()
        self._resumed = resumed
        self._from = resumed.manifest.step if resumed else 0
        self._attempt = last_attempt(run) + 1
        # A script resumes from a checkpoint of its own.
        self._resumed_from = None if self._is_script and self._attempt > 1 else self._from
        self._journal = JournalKeeper(run, lock, self._attempt)
        self._emit = self._journal.add
        self._saved: tuple[int, str] | None = None
        """Step and name of the last checkpoint."""
        self._save_at = self._started + BETWEEN_SAVES_S if plan.spaces_saves else inf
        """Time at which the ranks are told to save after their epoch."""
        self._attached: set[int] = set()
        """The ranks that somebody else started."""
        self._wait_until = self._started + FIRST_RANK_S if plan.processes == 0 else 0.0
        self._failures: list[Failure] = []
        self._phases: dict[int, PhaseName] = {}
        """Rank → what it does; a script's ranks are not in it."""
        self._left: dict[int, float] = {}
        """Rank → when it ended by itself, without failing."""
        self._agreement = Agreement()
        self._teardown = Teardown(self._agreement, self._config.stop_grace_s if self._is_script else None)
        self._watchdog = Watchdog(self._emit, self._place_of, self._unreachable)
        self._host_bound = HostBound()
        self._mirror: ChildProcess | None = None
        """The mirror's process; it ends by itself once it has read the end of the run."""
        self._reactor = Reactor()
        self._node = LocalNode(run, plan, self._token, self._reactor, self)
        self._nodes: Nodes | None = None
        """The other nodes; None until their agents may connect, and on one machine."""
        self._waits_for_nodes = False
        self._have_begun = False
        """Whether all processes that the plan has were there."""
        self._pending: list[CheckpointRequested | ProfileRequested] = []
        """Requests that the ranks have not been told of yet."""
        self._say_waiting_at = 0.0
        self._joined_until: float | None = None
        """Time at which nodes that were to join, and have not, are missed."""
        self._pending_stderr = ""
        """Text that a rank is to write to its stderr, once one reports."""
        self._held = ExitStack()
        # Slurm ends a step, too, by a signal to all its processes.
        in_step = not plan.processes and "SLURM_STEP_ID" in os.environ
        self.requests = Requests(run, in_job=in_step or self._config.launcher == "slurm")

    def run(self, notes: Sequence[str] = ()) -> None:
        """Runs from the first event to the last; `notes` say how this attempt began."""
        self._emit(run_started_event(self._run, self._plan, self._attempt, self._resumed_from))
        for note in notes:
            self._emit(Alert(kind="checkpoint", text=note))
        self._write(durable=True)
        with contextlib.suppress(OSError):
            note_started(self._run)
        try:
            self._start_processes()
            self._event_loop()
            self._end()
        except Exception as error:
            # Whatever it is, the run must not end silently.
            traceback.print_exc()
            self._give_up(error)

    def _event_loop(self) -> None:
        polled = monotonic()
        while self._ranks or self._waits_for_nodes or monotonic() < self._wait_until:
            self._reactor.wait(TICK_S)
            now = monotonic()
            if now - polled >= POLL_S:
                polled = now
                self._poll(now)
            self._teardown.advance(now, [*self._ranks.values(), *self._node.processes_beside()], self._emit)
            self._write()

    def _start_processes(self) -> None:
        self._node.start_reaper()
        if self._config.mirror != OFF:
            without = f"{self._config.mirror} is not written meanwhile, and the run continues; see supervisor.log"
            command = module("tuiapp.trainers.run.mirror", str(self._run.path))
            self._mirror = ChildProcess("mirror", command, self._run.supervisor_log, self._emit, without)
            self._mirror.advance(monotonic())
        if self._config.nodes == 1:
            self._start_ranks(LOOPBACK)
            if self._plan.others is not None:
                self._open_to_others()
            return
        try:
            self._nodes = Nodes(self._run, self._plan, own_address(self._config.network), self._reactor, self)
        except OSError as error:
            self._refuse(f"the run cannot listen for its nodes: {error.strerror}")
            return
        self._waits_for_nodes = True
        self._say_waiting(monotonic())

    def _open_to_others(self) -> None:
        """Lets the agents of the nodes join on which somebody else has started ranks."""
        try:
            self._nodes = Nodes(self._run, self._plan, own_address(self._config.network), self._reactor, self)
        except (OSError, NotHereError) as error:
            self._warn_partial_stop(f"its recorder cannot listen: {error}")
            with suppress(OSError):
                write_atomically(self._run.port, b"")
            return
        self._nodes.begin(self._token, self._attempt, port=0)
        self._joined_until = self._started + APART_S

    def _warn_partial_stop(self, why: str) -> None:
        """Says once that a stop does not reach all ranks: in the log, and to whoever has started the ranks."""
        self._joined_until = None
        text = f"a stop of this run reaches the ranks alone that report to it: {why}"
        self._emit(LogLine(rank=None, stream="run", text=text))
        self._pending_stderr = text

    def _check_joined(self, now: float) -> None:
        if self._pending_stderr and self._node.reporters is not None and self._node.reporters.connections:
            self._node.reporters.connections[0].send(wire.Say(self._pending_stderr))
            self._pending_stderr = ""
        if self._nodes is None or self._joined_until is None or now < self._joined_until:
            return
        self._joined_until = None
        joined, expected = self._nodes.joined, self._plan.others or 1
        if joined < expected:
            which = f"only {joined} of the {expected} other nodes" if joined else "no other node"
            where = f"where one does not share {self._run.path.parent}, its ranks are a run of their own"
            self._warn_partial_stop(f"{which} of its job has joined it within {APART_S:.0f} s; {where}")

    def _say_waiting(self, now: float) -> None:
        """Says which nodes are missing, and how they join; again now and then."""
        if self._nodes is None or self._config.launcher != "join" or now < self._say_waiting_at:
            return
        self._say_waiting_at = now + SAY_WAITING_S
        hint = f"tuiapp join {self._nodes.address}:{self._nodes.port} --secret-file {self._run.secret}"
        devices, which = devices_of_nodes(self._config), ""
        if len(set(devices[1:])) > 1:
            hint += " --node N"
            which = f", where N is {listed([f'{node} for {devices[node]} devices' for node in range(1, len(devices))])}"
        count = self._nodes.missing
        text = f"waiting for {count} more {'node' if count == 1 else 'nodes'}: on each run `{hint}`{which}"
        self._emit(LogLine(rank=None, stream="run", text=text))

    def _start_ranks(self, address: str) -> None:
        # A program that serves the rendezvous by itself listens on its port later.
        listens = BACKENDS[self._config.backend].takes_listener
        interface = "lo" if self._nodes is None else interface_of(address)
        resume_from = str(self._resumed.path) if self._resumed is not None else ""
        ports = read_ports(self._config.master_port)
        with ExitStack() as held:
            try:
                store = bind_rendezvous(address, ports) if listens else bind_free(address, ports)
            except OSError as error:
                self._refuse(f"rank 0 cannot listen for the others: {error.strerror}")
                return
            # A port that the program binds by itself is kept for it until the run ends.
            (held if listens else self._held).enter_context(store)
            port = store.getsockname()[1]
            rendezvous, passed = Rendezvous(port, address, 0, interface), store if listens else None
            try:
                self._node.start(rendezvous, self._attempt, list(self._plan.ranks_of(0)), resume_from, passed)
            except StartError as error:
                step = None if self._is_script else self._from
                self._fail(RankFailed(rank=error.rank, error=str(error), step=step))
                self._teardown.fail(monotonic())
                return
            if self._nodes is not None:
                self._nodes.begin(self._token, self._attempt, port, resume_from)

    @property
    def _ranks(self) -> Mapping[int, Rank]:
        """Returns the ranks that have not ended, on all nodes."""
        return self._node.ranks if self._nodes is None else {**self._nodes.ranks, **self._node.ranks}

    def _place_of(self, rank: int) -> str:
        """Returns the node of a rank as text; "" on one machine."""
        return self._nodes.place_of(rank) if self._nodes is not None else ""

    def _unreachable(self) -> dict[int, str]:
        """Returns the ranks whose node does not answer, each with the node's name."""
        return self._nodes.unreachable() if self._nodes is not None else {}

    def _advance_nodes(self, now: float) -> None:
        if self._nodes is None:
            return
        self._nodes.advance(now, failing=bool(self._failures), at_once=self._teardown.at_once)
        if self._waits_for_nodes and not self._teardown.stopping and (why := self._nodes.refusal()):
            # Nothing trains yet: the run ends here.
            self._waits_for_nodes = False
            self._fail(RankFailed(rank=0, error=why, step=None, lost=True))
        if self._waits_for_nodes and (self._teardown.stopping or not self._nodes.missing):
            self._waits_for_nodes = False
            if not self._teardown.stopping:
                self._start_ranks(self._nodes.address)
        if self._waits_for_nodes:
            self._say_waiting(now)

    def _refuse(self, why: str) -> None:
        """Ends the run before it has trained."""
        self._fail(RankFailed(rank=0, error=why, step=None, lost=True))
        self._teardown.fail(monotonic())

    def _fail(self, failed: RankFailed) -> None:
        self._failures.append((failed, False))
        self._emit(failed)

    def _voters(self) -> list[Voter]:
        ranks = self._ranks
        if self._node.reporters is None:
            return [*ranks.values()]
        # Agents send the votes of a script's ranks on other nodes.
        remote = [rank for rank in ranks.values() if isinstance(rank, RemoteRank)]
        return [*(reporter for reporter in self._node.reporters.connections if reporter.rank in ranks), *remote]

    # What is heard of the nodes: `ranks.Sink`.

    def on_event(self, event: Event) -> None:
        if isinstance(event, StopRequested):
            self._request_stop(event)
            return
        if isinstance(event, Metrics) and event.node:
            self._node.metrics.note_found()
        self._emit(event)

    def on_messages(self, rank: Rank, messages: Sequence[wire.FromRank], via: Voter) -> None:
        for message in messages:
            if isinstance(message, wire.Heartbeat):
                self._watchdog.on_heartbeat(message, monotonic())
            elif isinstance(message, Stacks):
                self._watchdog.on_stacks(message)
            elif isinstance(message, wire.Vote):
                self._agreement.count(message, via, self._voters())
            elif isinstance(message, StopRequested):
                self._request_stop(message)
            elif isinstance(message, wire.Agrees):
                via.agrees = True
                self._agreement.join(via, self._voters())
            elif isinstance(message, wire.Leaves):
                via.agrees = False
                self._agreement.leave(message.step, self._voters())
            elif not isinstance(message, wire.Hello | wire.Failed):
                if isinstance(message, Phase):
                    if not self._is_script:
                        self._phases[message.rank] = message.phase
                    rank.done |= message.phase == "done"
                    if message.phase == "checkpointing":
                        self._teardown.give_time_to_save(monotonic())
                        if self._plan.spaces_saves:
                            self._save_at = monotonic() + BETWEEN_SAVES_S
                elif isinstance(message, Checkpoint):
                    if self._is_script and (message.step, message.name) == self._saved:
                        # All ranks of a script may report it.
                        continue
                    self._saved = message.step, message.name
                self._emit(message)

    def on_attached(self, rank: Rank) -> None:
        if not self._plan.processes:
            self._attached.add(rank.rank)
            self._wait_until = 0.0
        if isinstance(rank, AttachedRank):
            if self._nodes is not None:
                self._nodes.own.add(rank.rank)
        elif self._teardown.killing:
            rank.kill(signal.SIGTERM)

    def on_left(self, connection: Connection) -> None:
        # It may go on without reports, to save its model or to another run: that is no hang.
        self._watchdog.forget(connection.rank)
        self._agreement.leave(0, self._voters())

    def rank_elsewhere(self, rank: int) -> RemoteRank | None:
        return self._nodes.ranks.get(rank) if self._nodes is not None else None

    def is_ending(self) -> bool:
        return self._teardown.killing

    def on_rank_exited(self, rank: Rank, failure: Failure | None) -> None:
        self._watchdog.forget(rank.rank)
        if self._plan.processes == 0 and len(self._attached) < self._plan.world_size:
            self._wait_until = monotonic() + LATE_RANK_S
        if self._teardown.killing and (self._teardown.at_once or failure is None or not self._still_counts(failure[0])):
            return
        reported = self._journal.state.ranks.get(rank.rank)
        last_step = reported.step if reported else 0
        if failure is None:
            self._left[rank.rank] = monotonic()
            self._watchdog.note_end(rank.rank)
            if not rank.done:
                self._emit(Phase(rank=rank.rank, phase="done"))
            if not self._is_script:
                self._agreement.leave(last_step, self._voters())
            return
        failed, consequence = failure
        failed = replace(failed, step=last_step or failed.step, phase=self._phases.get(rank.rank))
        self._failures.append((failed, consequence))
        self._emit(failed)
        self._write(durable=True)
        if self._plan.processes:
            self._teardown.fail(monotonic(), consequence=consequence)

    def _still_counts(self, failed: RankFailed) -> bool:
        """Tells whether a failure counts although its rank is being ended: it may be what the others have met."""
        if failed.lost or not self._teardown.failed:
            return failed.lost
        return bool(failed.error) and all(
            consequence and failed.mono < earlier.mono for earlier, consequence in self._failures
        )

    def _poll(self, now: float) -> None:
        self._node.poll(now)
        if self._mirror is not None:
            self._mirror.advance(now)
        self._watchdog.advance(now, self._ranks)
        if alert := self._host_bound.poll(self._journal.state, self._config, now):
            self._emit(alert)
        for request in self.requests.take(stopping=self._teardown.stopping):
            if isinstance(request, StopRequested):
                self._request_stop(request)
            elif not self._teardown.stopping:
                self._emit(request)
                self._pending.append(request)
        # Ranks on other nodes that begin later would not hear of a request.
        self._have_begun |= len(self._ranks) >= self._plan.processes
        if self._have_begun:
            self._ask_ranks()
            if now >= self._save_at and not self._teardown.stopping:
                self._save_at = inf
                self._agreement.propose(self._voters(), due=True)
        # After the requests: what ends Slurm's job ends its agents, too.
        self._advance_nodes(now)
        self._check_joined(now)

    def _ask_ranks(self) -> None:
        for request in self._pending:
            if isinstance(request, ProfileRequested):
                if not self._is_script:
                    self._agreement.propose(self._voters(), profile=request.steps)
            elif not self._agreement.propose(self._voters(), save=True):
                text = "the script does not ask tuiapp's should_checkpoint(): it saves its own checkpoints"
                self._emit(Alert(kind="checkpoint", severity="info", text=text))
        self._pending.clear()

    def _request_stop(self, request: StopRequested) -> None:
        if self._teardown.stopping and request.by.startswith("Slurm"):
            # Every process of its job hears of its end.
            return
        by_starter = request.by in ("Ctrl-C", "removal") or request.by.startswith(wire.STOP_OF)
        if self._plan.processes or not by_starter:
            agreed = self._teardown.stop(request, monotonic(), self._voters())
            self._emit(replace(request, agreed=agreed))
            return
        self._emit(request)
        # Whoever started the ranks ends them, or lets them train on: a script may save its model after Ctrl-C.
        self._teardown.interrupt(request)
        if request.by == "removal":
            self._node.ranks.clear()
            if self._nodes is not None:
                self._nodes.let_go()

    def _end(self) -> None:
        if self._nodes is not None:
            self._nodes.end()
        self._run.port.unlink(missing_ok=True)
        for pid in self._node.close():
            self._emit(LogLine(rank=None, stream="run", text=f"killed process {pid}, which a rank had left behind"))
        self._node.finish_metrics()
        for note in self._node.metrics.idle():
            self._emit(note)
        if early := left_early(self._failures, self._left):
            self._fail(early)
        # The end is the journal's last event, whatever is reported of the disk before it.
        self._write(durable=True)
        summary = self._journal.summary(completed=not self._failures and not self._teardown.stopping)
        self._journal.wait_for_room(self._is_given_up)
        self._emit(run_ended_event(self._failures, self._teardown, summary, self._plan.total_steps))
        self._write(durable=True)
        self._journal.wait_for_room(self._is_given_up)
        self._journal.close()

    def dismiss_reaper(self) -> None:
        self._node.dismiss_reaper()

    def _give_up(self, error: Exception) -> None:
        kill_tagged(self._token)
        reason = f"the run's supervisor failed: {type(error).__name__}: {error}; see supervisor.log"
        self._emit(RunEnded(status="failed", reason=reason, summary=self._journal.summary(completed=False)))
        self._journal.write_at_once()

    def _is_given_up(self) -> bool:
        """Tells whether somebody asks the run to end although its end cannot be written."""
        return any(isinstance(request, StopRequested) for request in self.requests.take(stopping=True))

    def _write(self, *, durable: bool = False) -> None:
        # A script saves its own.
        self._journal.write(None if self._is_script else self._node.ranks.get(0), durable=durable)
        if self._nodes is not None and not self._journal.is_blocked:
            self._nodes.confirm()


def run_started_event(run: RunDir, plan: Plan, attempt: int, resumed_from: int | None) -> RunStarted:
    """Builds the event that describes the run; this process is its supervisor."""
    return RunStarted(
        run_id=run.run_id,
        attempt=attempt,
        resumed_from=resumed_from,
        host=socket.gethostname(),
        nodes=1 + plan.others if plan.others else plan.config.nodes,
        pid=os.getpid(),
        config=to_toml_values(plan.config),
        world_size=plan.world_size,
        steps_per_epoch=plan.steps_per_epoch,
        total_steps=plan.total_steps,
        flops_per_example=plan.flops_per_example,
        job=slurm_job(),
        part=plan.part,
    )


def run_ended_event(failures: list[Failure], teardown: Teardown, summary: Summary, total_steps: int) -> RunEnded:
    """Builds the run's last event; `failures` as for `first_cause`."""
    if failures:
        cause = first_cause(failures)
        return RunEnded(status="failed", reason=describe_failure(cause), summary=summary, failed_rank=cause.rank)
    if teardown.stopping and (not total_steps or summary.steps < total_steps):
        return RunEnded(status="stopped", reason=teardown.reason(summary.steps), summary=summary)
    if not total_steps:
        reason = f"{summary.steps:,} steps" if summary.steps else "all processes exited with code 0"
        return RunEnded(status="completed", reason=reason, summary=summary)
    early = "early stop: " if summary.steps < total_steps else ""
    return RunEnded(status="completed", reason=f"{early}{summary.steps:,} of {total_steps:,} steps", summary=summary)


def main() -> None:
    """Takes the run's lock and runs it."""
    run, again, notes = RunDir(Path(sys.argv[1])), sys.argv[2:4], sys.argv[4:]
    disk_full_safe_stdio.make_stdio_disk_full_safe()
    lock = int(again[0]) if again else run.take_lock()
    run.handover.unlink(missing_ok=True)
    resumed = read_checkpoint(run.checkpoints / again[1]) if again and again[1] else None
    supervisor = Supervisor(run, read_plan(run.plan), resumed, lock)
    for number in SIGNALS:
        signal.signal(number, lambda number, _: supervisor.requests.note_signal(number))
    # The dashboard's terminal may go; the run does not.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor.run(notes)
    os.close(lock)  # as long as it is held the run counts as live
    supervisor.dismiss_reaper()
    start_notice(run)


if __name__ == "__main__":
    main()
