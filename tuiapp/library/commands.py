"""Commands to a live run: through its mailbox, or else by a signal to its supervisor.

A full disk, an exhausted quota or a read-only file system prevents a file in the mailbox; on the supervisor's machine a
signal still gets through.
"""

from __future__ import annotations

import signal
import socket

from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.lock import Liveness, LockNote
from tuiapp.trainers.contract.process_identity import machine, send_signal
from tuiapp.trainers.contract.rundir import RunDir

SIGNALS: dict[mailbox.Command, signal.Signals] = {
    "stop": signal.SIGTERM,
    "stop-now": signal.SIGQUIT,
    "checkpoint": signal.SIGUSR1,
}


class CannotAskError(Exception):
    """The run cannot be reached; the message gives the reason."""


def send_command(run: RunDir, command: mailbox.Command, known: LockNote | None = None, steps: int = 0) -> str:
    """Sends a command to a run, whose last known lock note is `known`; raises `CannotAskError` if it cannot.

    `steps` are those that "profile" is about.

    Returns "" if the run's mailbox took the command; otherwise what was done instead, in a sentence.
    """
    if run.liveness() is Liveness.WAITING:
        return _command_waiting(run, command)
    try:
        mailbox.send(run.commands, command, steps)
    except OSError as error:
        if command not in SIGNALS:
            raise CannotAskError(f"{run.commands} cannot be written ({error.strerror}).") from None
        return _signal(run, command, known, f"{run.commands} cannot be written ({error.strerror})")
    return ""


def _command_waiting(run: RunDir, command: mailbox.Command) -> str:
    """Stops a run that waits in the queue: nobody reads its mailbox."""
    from tuiapp.trainers.experiments.queue import QueueError, cancel

    if command in ("checkpoint", "profile"):
        raise CannotAskError("it waits in the queue and has not begun.")
    try:
        cancel(run.path.parent, run)
    except QueueError as error:
        raise CannotAskError(str(error)) from None
    return ""


def _signal(run: RunDir, command: mailbox.Command, known: LockNote | None, blocked: str) -> str:
    note, number, seen = run.lock_note(), SIGNALS[command], run.liveness()
    if seen is Liveness.UNKNOWN and known is not None:
        note = known
    elif not seen.is_live:
        raise CannotAskError(f"{blocked}, and its supervisor is not running.")
    if not note.supervisor:
        raise CannotAskError(f"{blocked}, and its lock file does not say which process to signal.")
    if note.machine != machine():
        raise CannotAskError(f"{blocked}, and a signal reaches its supervisor only {_where(note)}.")
    pid = note.supervisor.partition(":")[0]
    try:
        send_signal(note.supervisor, number)
    except PermissionError:
        raise CannotAskError(f"{blocked}, and its supervisor, pid {pid}, is another user's.") from None
    except OSError:
        raise CannotAskError(f"{blocked}, and its supervisor, pid {pid}, is gone.") from None
    again = "; a second one stops the run at once" if command == "stop" else ""
    return f"{blocked}: sent {number.name} to its supervisor, pid {pid}, instead{again}."


def _where(note: LockNote) -> str:
    if note.host != socket.gethostname():
        return f"from {note.host}, where it runs"
    return "from the container of this host in which it runs"
