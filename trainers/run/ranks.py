"""A run's ranks: those started here, those that somebody else started, and those of other nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Protocol, TypeAlias

from tuiapp.trainers.config import bootstrap
from tuiapp.trainers.config.files import open_own, read_end
from tuiapp.trainers.contract.events import Event, LogLine, RankFailed
from tuiapp.trainers.contract.process_identity import is_stopped
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import stacks, wire
from tuiapp.trainers.run.channel import Channel
from tuiapp.trainers.run.log_tail import LogTail
from tuiapp.trainers.run.rank_end import (
    CLEANUP_LINES,
    CLEANUP_S,
    ELASTIC_ERROR_FILE,
    LAST_LINES,
    MAX_TRACEBACK_BYTES,
    TRACEBACK,
    RankError,
    crashed_at_exit,
    describe_exit,
    find_terminate,
    is_consequence,
    oom_hint,
    read_failure,
)
from tuiapp.trainers.run.rank_environment import ScriptStart

Failure: TypeAlias = tuple[RankFailed, bool]
"""A rank's failure, and whether it looks like a consequence of another."""


class Rank:
    """A process that is a rank of the run; it votes on steps if it `agrees`."""

    directory: Path | None = None
    """Directory to which the rank writes its stacks; None if its node's agent reads them."""

    def __init__(self, rank: int, pid: int, *, agrees: bool = False) -> None:
        self.rank, self.pid, self.agrees = rank, pid, agrees
        self.done = False
        self.error: RankError | None = None
        """The error that the rank has reported."""
        self.connection: Connection | None = None
        """Connection over which it reports, or a process of this machine that reports as this rank."""

    def send(self, message: wire.ToRank) -> None:
        """Sends a message; does not wait for a rank that is gone or does not read."""
        if self.connection is not None:
            self.connection.send(message)

    def kill(self, number: signal.Signals) -> None:
        """Sends a signal, and wakes it if it is stopped."""
        raise NotImplementedError

    def ask_stacks(self) -> bool:
        """Has it write its Python stacks, and its collectives if it knows them; False if it would not."""
        return stacks.ask(self.connection.pid if self.connection else self.pid)

    def is_stopped(self) -> bool:
        """Tells whether a signal, or a debugger, has stopped it."""
        return is_stopped(self.pid)


class Connection:
    """One reporting process; its first message says which rank it is."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._socket = connection
        self.pid = pid
        self.rank = -1
        self.agrees = False
        self.messages = wire.rank_messages(connection.fileno())

    def send(self, message: wire.ToRank) -> None:
        """Sends a message; does not wait for a process that is gone or does not read."""
        with suppress(OSError):
            self._socket.send(wire.encode(message))

    def kill(self, number: signal.Signals) -> None:
        """Signals its process, which exists as long as the connection is open."""
        with suppress(OSError):
            os.kill(self.pid, number)
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self._socket.close()


class AttachedRank(Rank):
    """A rank that somebody else started; known by its connection. Raises OSError if no descriptor is left."""

    def __init__(self, run: RunDir, rank: int, connection: Connection) -> None:
        super().__init__(rank, connection.pid)
        self.directory: Path = run.rank(rank)
        try:
            self.exit_fd = os.pidfd_open(connection.pid)
        except ProcessLookupError:
            # It has ended already, and what it sent is still to be read: a descriptor that is readable at once.
            self.exit_fd, other = os.pipe()
            os.close(other)
        self.connection = connection
        self.exit_code: int | None = None
        """The exit code by the failure that the rank has reported; its process may go on, to another run."""

    def kill(self, number: signal.Signals) -> None:
        """Signals the process alone: its session may be the user's shell."""
        with suppress(OSError):
            signal.pidfd_send_signal(self.exit_fd, number)
            signal.pidfd_send_signal(self.exit_fd, signal.SIGCONT)

    def wait(self) -> None:
        """Does nothing: the exit status is for the rank's parent."""

    def new_lines(self, *, final: bool = False) -> list[LogLine]:
        """Returns nothing: the output goes to the rank's parent."""
        return []

    def failure(self, oom_killed: Callable[[], bool | None]) -> Failure | None:
        """Describes how it ended, if not by `finish`, and whether that looks like a consequence of another failure."""
        if self.done:
            return None
        record = self.error
        failed = RankFailed(
            rank=self.rank,
            hint=oom_hint(oom_killed()) if record is None and not self.exit_code else "",
            exit_code=self.exit_code,
            error=record.error if record else "" if self.exit_code else "its process ended without tuiapp.finish()",
            traceback=record.traceback if record else "",
            # It may be one that never reports any.
            step=None,
            mono=record.mono if record else monotonic(),
        )
        return failed, bool(record and record.consequence)

    def close(self) -> None:
        os.close(self.exit_fd)


class RemoteRank(Rank):
    """A rank process on another node; its pid, on its machine, is not known before it is stopped."""

    def __init__(self, rank: int, channel: Channel, *, agrees: bool) -> None:
        super().__init__(rank, 0, agrees=agrees)
        self._channel = channel
        self.stopped = False

    def send(self, message: wire.ToRank) -> None:
        self._channel.send(wire.ToRankOf(self.rank, message))

    def kill(self, number: signal.Signals) -> None:
        self._channel.send(wire.Signal(self.rank, number))

    def ask_stacks(self) -> bool:
        self._channel.send(wire.AskStacks(self.rank))
        return True

    def is_stopped(self) -> bool:
        return self.stopped


class RankProcess(Rank):
    """One rank, started by the constructor in its own session; rank 0 inherits `store`, the rendezvous socket.

    `rank` is the first that it reports for, `process` its number among all rank processes, torchrun's RANK.

    `interpreter` runs it; "" is our own. With `script` it is a rank of the user's own script, which knows nothing of
    the pipes: they have ended at once.

    Raises OSError if it cannot be started; nothing is left behind.
    """

    def __init__(
        self,
        run: RunDir,
        rank: int,
        environment: Mapping[str, str],
        store: socket.socket | None,
        interpreter: str = "",
        script: ScriptStart | None = None,
        process: int = 0,
        local_rank: int = 0,
    ) -> None:
        self.directory: Path = run.rank(rank)
        self._script = script
        # What an earlier attempt left is not this one's.
        for name in (ELASTIC_ERROR_FILE, stacks.FILE, stacks.COLLECTIVES_FILE):
            (self.directory / name).unlink(missing_ok=True)
        self.tails = [
            LogTail(self.directory / "stdout.log", rank, "stdout"),
            LogTail(self.directory / "stderr.log", rank, "stderr"),
        ]
        with ExitStack() as ours, ExitStack() as theirs:
            events_fd, events_write = _pipe(ours, theirs)
            control_read, self._control_fd = _pipe(theirs, ours)
            os.set_blocking(events_fd, False)
            os.set_blocking(self._control_fd, False)
            variables = {
                "RANK": str(process),
                "LOCAL_RANK": str(local_rank),
                wire.EVENTS_FD: str(events_write),
                wire.CONTROL_FD: str(control_read),
            }
            passed = [events_write, control_read]
            if store is not None:
                variables[wire.STORE_FD] = str(store.fileno())
                passed.append(store.fileno())
            if script is None:
                # The newer name, and that of before PyTorch 2.9. By default it is a directory of all runs.
                if not environment.keys() & {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}:
                    variables["TORCH_FR_DUMP_TEMP_FILE"] = str(self.directory / "flight-recorder-")
                if interpreter not in ("", sys.executable):
                    variables[wire.PYTHON] = sys.executable
                command = bootstrap.command(
                    interpreter or sys.executable, "tuiapp.trainers.rank.process", str(run.path), str(rank)
                )
                self._process = self._start(command, {**environment, **variables}, passed)
            else:
                variables = script.environment(process, local_rank, self.directory, environment)
                self._process = self._start(script.command, variables, [], script.working_directory)
            super().__init__(rank, self._process.pid, agrees=True)
            try:
                self.exit_fd = os.pidfd_open(self.pid)
                """Readable once the process has ended."""
            except OSError:
                self._process.kill()
                self._process.wait()
                raise
            ours.pop_all()
            # Only the rank holds the other ends now: its death is the end of the pipe.
        self.messages = wire.rank_messages(events_fd)
        self._raised_at: float | None = None
        """Time at which it printed its last traceback."""
        self.reports = self._said_before = 0
        """Batches of metrics; and all that it had reported and written when it printed that."""

    def _start(
        self, command: list[str], environment: dict[str, str], passed: list[int], directory: str | None = None
    ) -> subprocess.Popen[bytes]:
        with open_own(self.directory / "stdout.log", "ab") as out, open_own(self.directory / "stderr.log", "ab") as err:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                pass_fds=passed,
                start_new_session=True,
                cwd=directory,
            )

    def wait(self) -> None:
        """Collects its exit status; returns at once if `exit_fd` is readable."""
        self._process.wait()

    def send(self, message: wire.ToRank) -> None:
        if self._script is not None:
            super().send(message)
            return
        with suppress(OSError):
            os.write(self._control_fd, wire.encode(message))

    def kill(self, number: signal.Signals) -> None:
        """Signals its whole session, stopped processes included; of a script SIGTERM goes to the rank alone."""
        if self._process.poll() is None:
            if self._script and number == signal.SIGTERM:
                # As torchrun does: a script that finishes its step needs the workers that load its data.
                self._process.send_signal(number)
                number = signal.SIGCONT
            # A rank in a Slurm job ignores SIGTERM.
            for sent in (number, *([signal.SIGHUP] if number == signal.SIGTERM else []), signal.SIGCONT):
                try:
                    os.killpg(self.pid, sent)
                except ProcessLookupError:
                    return

    def ask_stacks(self) -> bool:
        if self._script is not None:
            return super().ask_stacks()
        self.send(wire.TellStacks())
        return stacks.answers(self.pid)

    def new_lines(self, *, final: bool = False) -> list[LogLine]:
        lines = [line for tail in self.tails for line in tail.poll(final=final)]
        if any(TRACEBACK in line.text for line in lines):
            self._raised_at, self._said_before = monotonic(), self._said()
        return lines

    def _said(self) -> int:
        return self.reports + sum(tail.written for tail in self.tails)

    def failure(self, oom_killed: Callable[[], bool | None]) -> Failure | None:
        """Describes its failure, and whether it looks like a consequence of another; None if it did not fail.

        Call once it has ended and its logs were read to their end. `oom_killed`: whether the OOM killer was active.
        """
        returncode = self._process.returncode
        if returncode == 0 and (self.done or self._script):
            return None
        exit_code, signal_name = describe_exit(returncode)
        killed = oom_killed() if signal_name == "SIGKILL" else None
        record = self._script_error(exit_code) if self._script and not killed else self.error
        failed = RankFailed(
            rank=self.rank,
            exit_code=exit_code,
            signal=signal_name,
            hint=oom_hint(killed) if signal_name == "SIGKILL" else self._why_silent(),
            error=record.error if record else "",
            traceback=record.traceback if record else "",
            last_lines=list(self.tails[1].last_lines)[-LAST_LINES:],
            step=None if self._script else 0,
            mono=record.mono if record else monotonic(),
        )
        return failed, bool(record and record.consequence)

    def _why_silent(self) -> str:
        with contextlib.suppress(OSError):
            disk = os.statvfs(self.directory)
            if disk.f_blocks and not disk.f_bavail:
                return f"and what it said is lost: no space is left for its logs in {self.directory}"
        return ""

    def _script_error(self, exit_code: int | None) -> RankError | None:
        # Python exits with 1 after an exception; any other code is the script's own, whatever it wrote before.
        if exit_code not in (1, None):
            return None
        ended_by_signal = exit_code is None
        began = [tail.began for tail in self.tails]
        said = read_failure(self.directory, *began) if not ended_by_signal or self._was_ending() else None
        if said is None and ended_by_signal:
            said = find_terminate(self._errors())
        if said is None:
            return None
        mono = self._raised_at or monotonic()
        return RankError(mono=mono, error=said.error, traceback=said.traceback, consequence=is_consequence(said.error))

    def _was_ending(self) -> bool:
        """Tells whether a signal came while the script ended after an exception, not after one that it had caught."""
        if self._raised_at is None:
            return False
        at_exit = crashed_at_exit(self._errors())
        if at_exit is not None:
            return at_exit
        return self._said() - self._said_before <= CLEANUP_LINES and monotonic() - self._raised_at <= CLEANUP_S

    def _errors(self) -> str:
        return read_end(self.directory / "stderr.log", self.tails[1].began, MAX_TRACEBACK_BYTES)

    def close(self) -> None:
        for fd in (self.messages.fd, self._control_fd, self.exit_fd):
            os.close(fd)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends


LocalRank: TypeAlias = RankProcess | AttachedRank
Voter: TypeAlias = Rank | Connection


class Sink(Protocol):
    """Gets what happens on a node, in its order."""

    def on_event(self, event: Event) -> None:
        """The node itself reports: a sample, a line of a log, an alert, a metric that was found."""

    def on_messages(self, rank: Rank, messages: Sequence[wire.FromRank], via: Voter) -> None:
        """A rank reports."""

    def on_attached(self, rank: Rank) -> None:
        """A process that somebody else started reports as a rank."""

    def on_left(self, connection: Connection) -> None:
        """A script's process reports no more; it may go on."""

    def on_rank_exited(self, rank: Rank, failure: Failure | None) -> None:
        """A rank has ended. All that it has sent came before; it is no longer among the node's ranks."""

    def rank_elsewhere(self, rank: int) -> Rank | None:
        """Returns a rank's process on another node, as which a process of this one may report; None without one."""

    def is_ending(self) -> bool:
        """Tells whether the ranks are being ended."""
