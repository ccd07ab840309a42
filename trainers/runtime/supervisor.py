"""One run's supervisor: starts the ranks, drains their pipes into the journal, ends them.

    python -m trainers.runtime.supervisor RUN_DIR [LOCK_FD CHECKPOINT [NOTE…]]

Given a checkpoint's name, the run goes on from there in a further attempt, under the lock that its starter took and
hands over as an open descriptor; notes say what was wrong with newer checkpoints.

A single thread that waits for whichever comes first: a message, the end of a process, a command, a deadline. Nothing
that reads the run, and nothing that a rank does, can block it. It ends when all ranks have ended, with the journal's
last event saying how.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from trainers.contract import mailbox
from trainers.contract.catalog import BACKENDS
from trainers.contract.config import RunConfig, to_toml_values
from trainers.contract.data_catalog import pin_dataset
from trainers.contract.events import (
    Alert,
    CheckpointRequested,
    Event,
    LogLine,
    Phase,
    RankFailed,
    RunEnded,
    RunStarted,
    StopRequested,
)
from trainers.contract.journal import JournalWriter
from trainers.contract.manifest import CheckpointDir, read_checkpoint
from trainers.contract.rundir import RunDir
from trainers.contract.runs import last_attempt, read_config
from trainers.contract.wording import describe_failure
from trainers.runtime import wire
from trainers.runtime.agreement import Agreement
from trainers.runtime.failures import first_cause
from trainers.runtime.processes import (
    RankProcess,
    bind_loopback,
    rank_environment,
    start_reaper,
    start_telemetry,
)
from trainers.runtime.sweep import kill_carriers
from trainers.runtime.tally import Tally
from trainers.runtime.teardown import Teardown

TICK_S = 0.05
POLL_S = 0.1
TELEMETRY_END_S = 1.0


class Supervisor:
    """Runs one run to its end.

    Args:
        run: Its directory, as `trainers.launch` made it.
        config: As in its run.toml.
        resumed: The checkpoint to go on from, if any.
    """

    def __init__(self, run: RunDir, config: RunConfig, resumed: CheckpointDir | None = None) -> None:
        self._run, self._config = run, config
        pin_dataset(config.dataset)
        self._processes = config.devices if BACKENDS[config.backend].process_per_device else 1
        self._token = f"{run.run_id}-{secrets.token_hex(8)}"
        self._started = monotonic()
        self._resumed = resumed
        self._from = resumed.manifest.step if resumed else 0
        self._tally = Tally(config, config.devices, self._from)
        self._out: list[Event] = []
        self._attempt = last_attempt(run) + 1
        self._journal = JournalWriter(run.journal)
        self._selector = selectors.DefaultSelector()
        self._live: dict[int, RankProcess] = {}
        self._failures: list[tuple[RankFailed, bool]] = []
        self._agreement = Agreement()
        self._teardown = Teardown(self._agreement)
        self._telemetry: tuple[subprocess.Popen[bytes], wire.LineReader] | None = None
        self._signals: list[int] = []
        self._removed = False

    def run(self, notes: Sequence[str] = ()) -> None:
        """From the first event to the last.

        Args:
            notes: What a person should know of how this attempt began.
        """
        self._say(
            RunStarted(
                run_id=self._run.run_id,
                attempt=self._attempt,
                resumed_from=self._from,
                host=socket.gethostname(),
                pid=os.getpid(),
                config=to_toml_values(self._config),
                world_size=self._config.devices,
                steps_per_epoch=self._config.steps_per_epoch,
                total_steps=self._config.total_steps,
            )
        )
        for note in notes:
            self._say(Alert(kind="checkpoint", text=note))
        self._write(durable=True)
        start_reaper(self._run, self._token)
        self._start_ranks()
        polled = monotonic()
        while self._live:
            for key, _ in self._selector.select(TICK_S):
                key.data()
            now = monotonic()
            if now - polled >= POLL_S:
                polled = now
                self._poll()
            self._teardown.advance(now, list(self._live.values()), self._say)
            self._write()
        self._end()

    def _start_ranks(self) -> None:
        with bind_loopback() as store:
            port = store.getsockname()[1]
            environment = rank_environment(self._config, self._token, port, self._processes)
            if self._resumed is not None:
                environment[wire.RESUME_FROM] = str(self._resumed.path)
            for rank in range(self._processes):
                process = RankProcess(self._run, rank, environment, store)
                self._live[rank] = process
                self._watch(process.messages.fd, partial(self._drain, process))
                self._watch(process.exit_fd, partial(self._bury, process))
        telemetry = start_telemetry(self._run, list(self._live.values()), environment)
        assert telemetry.stdout is not None
        self._telemetry = telemetry, wire.rank_messages(telemetry.stdout.fileno())
        self._watch(telemetry.stdout.fileno(), self._take_samples)

    def _watch(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def _drain(self, process: RankProcess) -> None:
        """Take what a rank has sent."""
        if process.rank not in self._live:
            return  # it was buried a moment ago, in the same round
        self._take(process, process.messages.read())
        if process.messages.ended:
            self._forget(process.messages.fd)

    def _take(self, process: RankProcess, messages: list[wire.FromRank]) -> None:
        for message in messages:
            if isinstance(message, wire.Vote):
                self._agreement.count(message, list(self._live.values()))
            elif isinstance(message, StopRequested):
                self._request_stop(message)
            else:
                if isinstance(message, Phase):
                    process.done |= message.phase == "done"
                    if message.phase == "checkpointing":
                        self._teardown.give_time_to_save(monotonic())
                self._tally.add(message)
                self._say(message)

    def _bury(self, process: RankProcess) -> None:
        """A rank's process has ended: take its last words, and see what its end means for the run."""
        self._take(process, process.messages.read_all())
        self._forget(process.messages.fd)
        self._forget(process.exit_fd)
        process.wait()
        self._out += process.new_lines(final=True)
        del self._live[process.rank]
        last_step = self._tally.last_step(process.rank)
        failure = process.failure(last_step)
        process.close()
        if self._teardown.killing:
            return
        if failure is None:
            self._agreement.leave(process.rank, last_step, list(self._live.values()))
            return
        self._failures.append(failure)
        self._say(failure[0])
        self._write(durable=True)
        self._teardown.fail(monotonic())

    def _take_samples(self) -> None:
        assert self._telemetry is not None
        process, messages = self._telemetry
        for event in messages.read():
            self._say(event)
        if messages.ended:
            self._forget(messages.fd)
            text = f"telemetry ended (exit code {self._collect(process)}); training goes on"
            self._say(Alert(kind="telemetry", text=text))
            self._telemetry = None

    def _collect(self, telemetry: subprocess.Popen[bytes]) -> int | None:
        """Its exit code; None when a driver call holds it: then it is not waited for."""
        try:
            return telemetry.wait(TELEMETRY_END_S)
        except subprocess.TimeoutExpired:
            return None

    def _poll(self) -> None:
        """What is not worth a descriptor: commands, log files."""
        for command in mailbox.take(self._run.commands):
            if command == "checkpoint":
                self._request_checkpoint("command")
            else:
                now = command == "stop-now"
                self._request_stop(StopRequested(now=now, save=not now, by="command"))
        if not self._removed and not self._run.path.exists():
            # Nobody could see or stop it any more.
            self._removed = True
            self._request_stop(StopRequested(now=True, by="removal"))
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGUSR1:
                self._request_checkpoint("SIGUSR1")
            else:
                now = self._teardown.stopping
                self._request_stop(StopRequested(now=now, save=not now, by="SIGTERM"))
        for process in self._live.values():
            self._out += process.new_lines()

    def _request_stop(self, request: StopRequested) -> None:
        self._say(request)
        self._teardown.stop(request, monotonic(), list(self._live.values()))

    def _request_checkpoint(self, by: str) -> None:
        if not self._teardown.stopping:
            self._say(CheckpointRequested(by=by))
            self._agreement.propose(list(self._live.values()), save=True)

    def note_signal(self, number: int) -> None:
        """A SIGTERM or SIGUSR1 has come: taken up at the next poll, outside the signal handler."""
        self._signals.append(number)

    def _end(self) -> None:
        if self._telemetry is not None:
            process, messages = self._telemetry
            self._forget(messages.fd)
            process.kill()
            self._collect(process)
        for pid in kill_carriers(self._token):
            self._say(LogLine(rank=None, stream="run", text=f"killed process {pid}, which a rank had left behind"))
        summary = self._tally.summary(monotonic() - self._started)
        if self._failures:
            cause = first_cause(self._failures)
            end = RunEnded(status="failed", reason=describe_failure(cause), summary=summary, failed_rank=cause.rank)
        elif self._teardown.stopping and summary.steps < self._config.total_steps:
            end = RunEnded(status="stopped", reason=self._teardown.reason(summary.steps), summary=summary)
        else:
            end = RunEnded(
                status="completed", reason=f"{summary.steps:,} of {self._config.total_steps:,} steps", summary=summary
            )
        self._say(end)
        self._write(durable=True)
        self._journal.close()

    def _say(self, event: Event) -> None:
        self._out.append(event)

    def _write(self, *, durable: bool = False) -> None:
        if self._out or self._journal.blocked:
            self._journal.append(self._out, durable=durable)
            self._out.clear()
        self._journal.sync_due()

    def _forget(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)


def main() -> None:
    """Take the run's lock and run it."""
    run = RunDir(Path(sys.argv[1]))
    again, notes = sys.argv[2:4], sys.argv[4:]
    lock = int(again[0]) if again else run.take_lock()
    resumed = read_checkpoint(run.checkpoints / again[1]) if again else None
    supervisor = Supervisor(run, read_config(run), resumed)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: supervisor.note_signal(number))
    # The dashboard's terminal may go; the run does not.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor.run(notes)
    os.close(lock)


if __name__ == "__main__":
    main()
