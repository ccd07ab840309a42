"""Commands to a live run: through its mailbox, or else by a signal to its supervisor.

A full disk, an exhausted quota or a read-only file system prevents a file in the mailbox; on the supervisor's machine a
signal still gets through.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable

from tuiapp.actions.action import ActionError, Outcome, each
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.lock import Liveness, LockNote
from tuiapp.trainers.contract.process_identity import machine, send_signal
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import read_only_reason

SIGNALS: dict[sidecars.Command, signal.Signals] = {
    "stop": signal.SIGTERM,
    "stop-now": signal.SIGQUIT,
    "checkpoint": signal.SIGUSR1,
}


def request(runs: Iterable[RunDir], command: sidecars.Command, steps: int = 0) -> Outcome:
    """Sends a command to runs, as `send` to each."""

    def send_to(run: RunDir) -> str:
        if reason := read_only_reason(run):
            raise ActionError(f"{run.run_id} takes no commands: {reason}.")
        return send(run, command, steps=steps)

    return each(runs, send_to, "warning")


def send(run: RunDir, command: sidecars.Command, last_note: LockNote | None = None, steps: int = 0) -> str:
    """Sends a command to a run, whose last known lock note is `last_note`; raises `ActionError` if it cannot.

    `steps` are those that "profile" is about.

    Returns "" if the run's mailbox took the command; otherwise what was done instead, in a sentence.
    """
    try:
        if os.path.lexists(run.waits) and _command_waiting(run, command):
            return ""
        try:
            sidecars.send_command(run.commands, command, steps)
        except OSError as error:
            return _signal(run, command, last_note, f"{run.commands} cannot be written ({error.strerror})")
    except _BlockedError as error:
        raise ActionError(f"Cannot send the command to {run.run_id}: {error}") from None
    return ""


class _BlockedError(Exception):
    """Why a command cannot be sent."""


def _command_waiting(run: RunDir, command: sidecars.Command) -> bool:
    """Stops a run that waits in the queue, or is just being started: nobody reads its mailbox.

    Returns False if it has begun.
    """
    from tuiapp.trainers.experiments.queue import NotWaitingError, QueueError, cancel

    if command in ("checkpoint", "profile"):
        if run.liveness() is not Liveness.WAITING:
            return False
        raise _BlockedError("it waits in the queue and has not begun.")
    try:
        cancel(run.path.parent, run)
    except NotWaitingError:
        return False
    except QueueError as error:
        raise _BlockedError(str(error)) from None
    return True


def _signal(run: RunDir, command: sidecars.Command, last_note: LockNote | None, blocked: str) -> str:
    if command not in SIGNALS:
        raise _BlockedError(f"{blocked}.")
    note, number, liveness = run.lock_note(), SIGNALS[command], run.liveness()
    if liveness is Liveness.UNKNOWN and last_note is not None:
        note = last_note
    elif not liveness.is_live:
        raise _BlockedError(f"{blocked}, and its supervisor is not running.")
    if not note.supervisor:
        raise _BlockedError(f"{blocked}, and its lock file does not say which process to signal.")
    if note.machine != machine():
        raise _BlockedError(f"{blocked}, and a signal reaches its supervisor only {_where(note)}.")
    pid = note.supervisor.partition(":")[0]
    try:
        send_signal(note.supervisor, number)
    except PermissionError:
        raise _BlockedError(f"{blocked}, and its supervisor, pid {pid}, is another user's.") from None
    except OSError:
        raise _BlockedError(f"{blocked}, and its supervisor, pid {pid}, is gone.") from None
    again = "; a second one stops the run at once" if command == "stop" else ""
    return f"{blocked}: sent {number.name} to its supervisor, pid {pid}, instead{again}."


def _where(note: LockNote) -> str:
    if note.host != socket.gethostname():
        return f"from {note.host}, where it runs"
    return "from the container of this host in which it runs"
