"""One run's supervisor: starts the ranks, drains what they report into the journal, ends them.

    python -m trainers.runtime.supervisor RUN_DIR [LOCK_FD CHECKPOINT [NOTE…]]

Given a checkpoint's name, the run resumes from it in a further attempt, under the lock that its starter took and passes
on as an open descriptor; notes say what was wrong with newer checkpoints. The name is "" for a script, which saves its
own.

A script's ranks report over a socket (`listener`). If its plan has no processes, somebody else starts them: the
supervisor then only records those that connect, and ends when they have ended.

A single thread waits for whichever comes first: a message, the end of a process, a command, a deadline. No reader of
the run, and no rank, can block it. It ends once all ranks have ended; the journal's last event says how.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from msgspec.structs import replace

from trainers.config.catalog import BACKENDS
from trainers.config.machine import inspect_machine
from trainers.config.memory import jax_memory_words
from trainers.config.mirror import OFF
from trainers.config.network import interface_of, own_address
from trainers.config.plan import Plan, read_plan
from trainers.contract.evaluations import NEVER
from trainers.contract.events import (
    Alert,
    Checkpoint,
    Event,
    LogLine,
    Metrics,
    Phase,
    RankFailed,
    RunEnded,
    Stacks,
    StopRequested,
    Summary,
)
from trainers.contract.journal import JournalWriter
from trainers.contract.manifest import CheckpointDir, best_saved, read_checkpoint
from trainers.contract.rundir import RunDir
from trainers.contract.strays import kill_carriers
from trainers.contract.summary import last_attempt, summarise
from trainers.runtime import disk_full_safe_stdio, notice, wire
from trainers.runtime.agreement import Agreement, Voter
from trainers.runtime.digest_writer import DigestWriter
from trainers.runtime.helper import Helper
from trainers.runtime.journal_watch import JournalWatch
from trainers.runtime.listener import AttachedRank, Connection
from trainers.runtime.nodes import Nodes, RemoteRank, join_hint, node_token
from trainers.runtime.out_of_memory import OomWatch
from trainers.runtime.place import LOOPBACK, Place, pick_gpus
from trainers.runtime.processes import (
    RankProcess,
    bind_rendezvous,
    device_environment,
    rank_environment,
    start_reaper,
)
from trainers.runtime.recorder import Recorder
from trainers.runtime.reporters import Reporters
from trainers.runtime.requests import SIGNALS, Requests
from trainers.runtime.run_events import run_ended_event, run_started_event, script_started_events
from trainers.runtime.sampling import keep_sampler
from trainers.runtime.script_metrics import ScriptMetrics
from trainers.runtime.script_process import reserve_port, script_environment, script_start
from trainers.runtime.tail_keeper import TailKeeper
from trainers.runtime.tally import Tally
from trainers.runtime.teardown import Process, Teardown
from trainers.runtime.watchdog import Watchdog
from trainers.telemetry.keeper import SamplerKeeper

TICK_S = 0.05
POLL_S = 0.1
FIRST_RANK_S = 30.0
"""Time for the first rank to connect, if somebody else starts them."""
LATE_RANK_S = 2.0
"""Time for a rank that is still missing to connect after the others have ended."""
SAY_WAITING_S = 600.0
RESAMPLE_S = 1.0
"""From a rank's connection to sampling its process: others may follow."""

Rank: TypeAlias = RankProcess | AttachedRank | RemoteRank


class Supervisor:
    """Runs one run to its end; `lock` is the descriptor that holds the run's lock."""

    def __init__(self, run: RunDir, plan: Plan, resumed: CheckpointDir | None = None, lock: int | None = None) -> None:
        self._run, self._plan, self._config = run, plan, plan.config
        self._token = node_token(f"{run.run_id}-{secrets.token_hex(8)}", 0)
        self._started = monotonic()
        self._resumed = resumed
        self._from = resumed.manifest.step if resumed else 0
        best = best_saved(run.checkpoints) if resumed else NEVER
        self._attempt = last_attempt(run) + 1
        before = summarise(run).summary if self._attempt > 1 else None
        self._tally = Tally(plan, plan.world_size, self._from, best, before)
        self._out: list[Event] = []
        self._journal = JournalWriter(run.journal)
        self._digest = DigestWriter(run, self._journal)
        self._journal_watch = JournalWatch(self._journal, lock, self._attempt)
        self._recorder = Recorder(self._journal)
        self._tail = TailKeeper(run, self._journal, self._summary, lambda: self._digest.earlier)
        self._saved: tuple[int, str] | None = None
        """Step and name of the last checkpoint."""
        self._selector = selectors.DefaultSelector()
        self._live: dict[int, Rank] = {}
        self._script = None if BACKENDS[self._config.backend].builtin else script_start(run, plan)
        self._attached: set[int] = set()
        """The ranks that somebody else started."""
        self._wait_until = self._started + FIRST_RANK_S if plan.processes == 0 else 0.0
        self._resample_at: float | None = None
        self._failures: list[tuple[RankFailed, bool]] = []
        self._agreement = Agreement()
        self._metrics = ScriptMetrics(self._config) if self._script else None
        self._teardown = Teardown(self._agreement, self._config.stop_grace_s if self._script else None)
        self._reporters: Reporters | None = None
        """None unless a script trains."""
        if self._script is not None:
            hands = self._watch, self._forget, self._admit, self._take, self._leave, self._on_rank_exit
            self._reporters = Reporters(run, run.address, self._live, *hands, lambda: self._teardown.killing)
        self._watchdog = Watchdog(self._emit, self._place_of, self._away)
        self._oom = OomWatch(self._started)
        without = "training continues, but if the supervisor died too, the ranks would not end at once"
        self._reaper = Helper("reaper", partial(start_reaper, run, self._token), self._emit, without)
        self._mirror: Helper | None = None
        """Ends by itself, once it has read the end of the run."""
        self._sampler: SamplerKeeper | None = None
        self._nodes: Nodes | None = None
        """The others; None until their agents may connect, and on one machine."""
        self._waits_for_nodes = False
        self._say_waiting_at = 0.0
        self._gpus: tuple[str, ...] = ()
        self._shared: dict[str, str] = {}
        """The environment of all ranks."""
        self._held = ExitStack()
        self.requests = Requests(run, in_job=self._config.launcher == "slurm")

    def run(self, notes: Sequence[str] = ()) -> None:
        """Runs from the first event to the last; `notes` say how this attempt began."""
        # A script resumes from a checkpoint of its own.
        resumed_from = None if self._script is not None and self._attempt > 1 else self._from
        self._emit(run_started_event(self._run, self._plan, self._attempt, resumed_from))
        for note in notes:
            self._emit(Alert(kind="checkpoint", text=note))
        self._write(durable=True)
        if self._attempt > 1:
            # What the digest knows of earlier attempts, now that it knows from which step this one resumes.
            self._out += self._tail.repeat()
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
        while self._live or self._waits_for_nodes or monotonic() < self._wait_until:
            for key, _ in self._selector.select(TICK_S):
                key.data()
            now = monotonic()
            if now - polled >= POLL_S:
                polled = now
                self._poll(now)
            self._teardown.advance(now, self._processes(), self._emit)
            self._write()

    def _start_processes(self) -> None:
        # Before any rank, so that none is ever without.
        self._reaper.advance(monotonic())
        if self._config.mirror != OFF:
            # Other runs need not wait for its import.
            from trainers.runtime.mirror import start_mirror

            without = f"{self._config.mirror} is not written meanwhile, and the run continues; see supervisor.log"
            self._mirror = Helper("mirror", partial(start_mirror, self._run), self._emit, without)
            self._mirror.advance(monotonic())
        if self._config.nodes == 1:
            self._start_ranks(LOOPBACK)
            return
        self._nodes = Nodes(
            self._run,
            self._plan,
            own_address(self._config.network),
            emit=self._record,
            watch=self._watch,
            forget=self._forget,
            admit=self._admit_remote,
            take=self._take_remote,
            bury=self._on_rank_exit,
            stop=self._request_stop,
        )
        self._waits_for_nodes = True
        self._say_waiting(monotonic())

    def _say_waiting(self, now: float) -> None:
        """Says which nodes are missing, and how they join; again now and then."""
        if self._nodes is None or self._config.launcher != "join" or now < self._say_waiting_at:
            return
        self._say_waiting_at = now + SAY_WAITING_S
        hint = join_hint(self._nodes.address, self._nodes.port, self._run.secret)
        count = self._nodes.missing
        text = f"waiting for {count} more {'node' if count == 1 else 'nodes'}: on each run `{hint}`"
        self._emit(LogLine(rank=None, stream="run", text=text))

    def _take_remote(self, rank: RemoteRank, messages: list[wire.FromRank]) -> None:
        self._take(rank, messages, rank)

    def _admit_remote(self, rank: RemoteRank) -> None:
        if self._teardown.killing:
            rank.kill(signal.SIGTERM)
        # The process that a node started may have its number.
        self._live.setdefault(rank.rank, rank)

    def _pick_gpus(self) -> tuple[str, ...]:
        if self._config.launcher == "local":
            # At the launch.
            return self._config.device_ids
        machine = inspect_machine()
        picked = pick_gpus(self._config, machine)
        self._plan = self._plan.on_gpus(machine, picked)
        return picked

    def _start_ranks(self, address: str) -> None:
        self._gpus = self._pick_gpus()
        if (fraction := self._plan.jax_memory_fraction) is not None:
            self._emit(LogLine(rank=None, stream="run", text=jax_memory_words(fraction)))
        with ExitStack() as held:
            # A program that serves the rendezvous by itself listens on its port later.
            listens = BACKENDS[self._config.backend].takes_listener
            store = bind_rendezvous(address) if listens else reserve_port(address)
            # It is kept for it until the run ends.
            (held if listens else self._held).enter_context(store)
            port = store.getsockname()[1]
            interface = "lo" if self._nodes is None else interface_of(address)
            environment = self._shared = self._environment(Place(port, address, 0, interface, self._gpus))
            resume_from = str(self._resumed.path) if self._resumed is not None else ""
            if resume_from:
                environment[wire.RESUME_FROM] = resume_from
            for number, rank in enumerate(self._plan.ranks_of(0)):
                if not self._start_rank(rank, number, environment, store if rank == 0 and listens else None):
                    break
            else:
                if self._nodes is not None:
                    self._live |= self._nodes.begin(self._token, self._attempt, port, resume_from)
        if self._plan.processes:
            self._start_sampler()

    def _place_of(self, rank: int) -> str:
        """The node of a rank as text; "" on one machine."""
        return self._nodes.place_of(rank) if self._nodes is not None else ""

    def _away(self) -> dict[int, str]:
        """The ranks whose node does not answer, each with the node's name."""
        return self._nodes.away() if self._nodes is not None else {}

    def _advance_nodes(self, now: float) -> None:
        if self._nodes is None:
            return
        self._nodes.advance(now, failing=bool(self._failures), at_once=self._teardown.at_once)
        if self._waits_for_nodes and not self._teardown.stopping and (why := self._nodes.refusal()):
            # Nothing trains yet: the run ends here.
            self._waits_for_nodes = False
            failed = RankFailed(rank=0, error=why, step=None, lost=True)
            self._failures.append((failed, False))
            self._emit(failed)
        if self._waits_for_nodes and (self._teardown.stopping or not self._nodes.missing):
            self._waits_for_nodes = False
            if not self._teardown.stopping:
                self._start_ranks(self._nodes.address)
        if self._waits_for_nodes:
            self._say_waiting(now)

    def _start_sampler(self) -> None:
        if self._sampler is not None:
            self._sampler.end()
        hands = self._emit, self._watch, self._forget
        own = {number: rank for number, rank in self._live.items() if not isinstance(rank, RemoteRank)}
        self._sampler = keep_sampler(self._run, self._config, own, self._shared, *hands, self._gpus)

    def _environment(self, place: Place) -> dict[str, str]:
        if self._reporters is None:
            return rank_environment(self._plan, self._token, place)
        own = script_environment(self._run, self._reporters.name, self._plan, place, self._attempt)
        return {**own, **device_environment(self._gpus, self._token)}

    def _start_rank(self, rank: int, number: int, environment: Mapping[str, str], store: socket.socket | None) -> bool:
        try:
            process = RankProcess(self._run, rank, environment, store, self._plan.python, self._script, number, number)
        except OSError as error:
            text = f"its process could not be started: {error.strerror or error}"
            failed = RankFailed(rank=rank, error=text, step=self._from)
            self._failures.append((failed, False))
            self._emit(failed)
            self._teardown.fail(monotonic())
            return False
        self._live[rank] = process
        if self._metrics is not None:
            self._out += script_started_events(self._config, rank, process.pid, number, self._gpus)
            self._metrics.listen(process)
        self._watch(process.messages.fd, partial(self._drain, process))
        self._watch(process.exit_fd, partial(self._on_rank_exit, process))
        return True

    def _watch(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def _drain(self, process: RankProcess) -> None:
        if process.rank not in self._live:
            return  # it was buried a moment ago, in the same round
        self._take(process, process.messages.read(), process)
        if process.messages.ended:
            self._forget(process.messages.fd)

    def _admit(self, rank: AttachedRank) -> None:
        self._live[rank.rank] = rank
        self._attached.add(rank.rank)
        self._wait_until = 0.0
        self._watch(rank.exit_fd, partial(self._on_rank_exit, rank))
        self._resample_at = monotonic() + RESAMPLE_S

    def _leave(self, connection: Connection) -> None:
        # It may go on without reports, to save its model or to another run: that is no hang.
        self._watchdog.forget(connection.rank)
        self._agreement.leave(0, self._voters())

    def _voters(self) -> list[Voter]:
        if self._reporters is None:
            return [rank for rank in self._live.values() if not isinstance(rank, AttachedRank)]
        # Agents send the votes of a script's ranks on other nodes.
        remote = [rank for rank in self._live.values() if isinstance(rank, RemoteRank)]
        return [*(one for one in self._reporters.connections if one.rank in self._live), *remote]

    def _processes(self) -> list[Process]:
        """What a stop ends: the ranks, and other processes that report as one."""
        return [*self._live.values(), *(self._reporters.beside() if self._reporters is not None else [])]

    def _take(self, process: Rank, messages: list[wire.FromRank], via: Voter) -> None:
        for message in messages:
            if isinstance(message, wire.Heartbeat):
                self._watchdog.hear(message, monotonic())
            elif isinstance(message, Stacks):
                self._watchdog.hear_stacks(message)
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
            elif isinstance(message, wire.Failed):
                if isinstance(process, RankProcess):
                    process.error = message.error
            elif isinstance(message, wire.Hello):
                continue
            else:
                if isinstance(message, Phase):
                    process.done |= message.phase == "done"
                    if message.phase == "checkpointing":
                        self._teardown.give_time_to_save(monotonic())
                elif isinstance(message, Checkpoint):
                    if self._script is not None and (message.step, message.name) == self._saved:
                        # All ranks of a script may report it.
                        continue
                    self._saved = message.step, message.name
                    self._recorder.add(message)
                self._tally.add(message)
                self._emit(message)

    def _on_rank_exit(self, process: Rank) -> None:
        if self._live.get(process.rank) is not process:
            return
        if isinstance(process, RankProcess):
            self._take(process, process.messages.read_all(), process)
            self._forget(process.messages.fd)
        if self._reporters is not None and (connection := process.connection) is not None:
            self._reporters.hear(connection, final=True)
        self._forget(process.exit_fd)
        process.wait()
        self._out += process.new_lines(final=True)
        self._take_found()
        del self._live[process.rank]
        self._watchdog.forget(process.rank)
        last_step = self._tally.last_step(process.rank)
        failure = process.failure(last_step, self._oom.struck)
        process.close()
        if self._plan.processes == 0 and len(self._attached) < self._plan.world_size:
            self._wait_until = monotonic() + LATE_RANK_S
        lost = isinstance(process, RemoteRank) and process.is_lost
        if self._teardown.killing and (self._teardown.at_once or not lost):
            return
        if failure is None:
            if not process.done:
                self._emit(Phase(rank=process.rank, phase="done"))
            if self._script is None:
                self._agreement.leave(last_step, self._voters())
            return
        self._failures.append(failure)
        self._emit(failure[0])
        self._write(durable=True)
        if self._plan.processes:
            self._teardown.fail(monotonic())

    def _poll(self, now: float) -> None:
        self._reaper.advance(now)
        if self._mirror is not None:
            self._mirror.advance(now)
        if self._resample_at is not None and now >= self._resample_at:
            self._resample_at = None
            self._start_sampler()
        if self._sampler is not None:
            self._sampler.advance(now)
        self._watchdog.advance(now, self._live)
        self._oom.look(now)
        for request in self.requests.take(stopping=self._teardown.stopping):
            if isinstance(request, StopRequested):
                self._request_stop(request)
            elif not self._teardown.stopping:
                self._emit(request)
                if not self._agreement.propose(self._voters(), save=True):
                    text = "the script does not ask tuiapp's should_checkpoint(): it saves its own checkpoints"
                    self._emit(Alert(kind="checkpoint", severity="info", text=text))
        # After the requests: what ends Slurm's job ends its agents, too.
        self._advance_nodes(now)
        for process in self._live.values():
            self._out += process.new_lines()
        self._take_found()
        self._out += self._tail.due()

    def _take_found(self, *, last: bool = False) -> None:
        """Takes the metrics that were found in a script's output and files."""
        if self._metrics is not None:
            for event in self._metrics.finish() if last else self._metrics.take(monotonic()):
                self._tally.add(event)
                self._emit(event)
            if last:
                self._out += self._metrics.idle()

    def _record(self, event: Event) -> None:
        """Records what an agent reports of itself; metrics are those that it has found as `ScriptMetrics` does here."""
        if isinstance(event, Metrics) and self._metrics is not None:
            self._metrics.note_found()
            self._tally.add(event)
        self._emit(event)

    def _request_stop(self, request: StopRequested) -> None:
        if self._teardown.stopping and request.by.startswith("Slurm"):
            # Every process of its job hears of its end.
            return
        own = request.by in ("Ctrl-C", "removal") or request.by.startswith(wire.STOP_OF)
        if self._plan.processes or not own:
            agreed = self._teardown.stop(request, monotonic(), self._voters())
            self._emit(replace(request, agreed=agreed))
            return
        self._emit(request)
        # Whoever started the ranks ends them, or lets them train on: a script may save its model after Ctrl-C.
        self._teardown.interrupt(request)
        if request.by == "removal":
            self._live.clear()

    def _end(self) -> None:
        if self._sampler is not None:
            self._sampler.end()
        if self._nodes is not None:
            self._nodes.end()
        if self._reporters is not None:
            self._reporters.close()
        self._take_found(last=True)
        for pid in kill_carriers(self._token):
            self._emit(LogLine(rank=None, stream="run", text=f"killed process {pid}, which a rank had left behind"))
        summary = self._summary()
        # The end is the journal's last event, whatever is reported of the disk before it.
        self._write(durable=True)
        self._journal_watch.wait_for_room(self._is_given_up)
        self._out += [*self._tail.due(), *self._journal_watch.check()]
        self._emit(run_ended_event(self._failures, self._teardown, summary, self._plan.total_steps))
        self._write(durable=True)
        self._journal_watch.wait_for_room(self._is_given_up)
        self._digest.write()
        self._journal.close()
        self._journal_watch.end()

    def dismiss_reaper(self) -> None:
        self._reaper.end()

    def _give_up(self, error: Exception) -> None:
        kill_carriers(self._token)
        reason = f"the run's supervisor failed: {type(error).__name__}: {error}; see supervisor.log"
        self._emit(RunEnded(status="failed", reason=reason, summary=self._summary()))
        # By the journal alone: what else `_write` does may be what failed.
        self._journal.append(self._out, durable=True)

    def _is_given_up(self) -> bool:
        """Whether somebody asks the run to end although its end cannot be written."""
        return any(isinstance(request, StopRequested) for request in self.requests.take(stopping=True))

    def _summary(self) -> Summary:
        """What the run has come to."""
        return self._tally.summary(monotonic() - self._started, self._digest.earlier)

    def _emit(self, event: Event) -> None:
        self._tail.add(event)
        self._out.append(event)

    def _write(self, *, durable: bool = False) -> None:
        if self._out or self._journal.blocked:
            self._journal.append(self._out, durable=durable)
            self._out.clear()
            self._digest.write_due()
        self._journal.sync_due()
        if self._nodes is not None and not self._journal.blocked:
            self._nodes.confirm()
        writer = self._live.get(0)
        self._recorder.report_covered(self._tally.step, writer if isinstance(writer, RankProcess) else None)
        self._out += self._journal_watch.check()

    def _forget(self, fd: int) -> None:
        if fd >= 0 and fd in self._selector.get_map():
            self._selector.unregister(fd)


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
    notice.start(run)


if __name__ == "__main__":
    main()
