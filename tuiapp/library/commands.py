"""Asks a live run for something: through its mailbox, or where that cannot be written by a signal to its supervisor.

A disk that is full, a quota that is used up, a file system that has become read-only let no file be made: what they do
not let through a signal does, on the machine where the run's supervisor is.
"""

from __future__ import annotations

import signal
import socket

from trainers.contract import mailbox
from trainers.contract.lock_note import LockNote, read_note
from trainers.contract.process_identity import machine, send_signal
from trainers.contract.rundir import RunDir

SIGNALS: dict[mailbox.Command, signal.Signals] = {
    "stop": signal.SIGTERM,
    "stop-now": signal.SIGQUIT,
    "checkpoint": signal.SIGUSR1,
}


class CannotAskError(Exception):
    """The run could not be asked; the message says what blocks it."""


def send_command(run: RunDir, command: mailbox.Command, known: LockNote | None = None) -> str:
    """Ask a run for something.

    Args:
        run: The run.
        command: What for.
        known: What its lock said last: it may be out of reach by now.

    Returns:
        "" where its mailbox took the command; else what was done instead, in a sentence.

    Raises:
        CannotAskError: neither could be done.
    """
    try:
        mailbox.send(run.commands, command)
    except OSError as error:
        return _signal(run, command, known, f"{run.commands} cannot be written ({error.strerror})")
    return ""


def _signal(run: RunDir, command: mailbox.Command, known: LockNote | None, blocked: str) -> str:
    note, number, live = read_note(run), SIGNALS[command], run.seen_live()
    if live is None and known is not None:
        note = known
    elif not live:
        raise CannotAskError(f"{blocked}, and no supervisor of it is alive.")
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
    again = ": sent once more it stops at once" if command == "stop" else ""
    return f"{blocked}: sent {number.name} to its supervisor, pid {pid}, instead{again}."


def _where(note: LockNote) -> str:
    if note.host != socket.gethostname():
        return f"from {note.host}, where it runs"
    return "from the container of this host in which it runs"
