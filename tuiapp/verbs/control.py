"""`tuiapp stop` and `tuiapp checkpoint`: what is asked of a run that goes on."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from trainers.contract import mailbox
from trainers.contract.events import Alert, AnyEvent, Checkpoint, CheckpointRequested
from trainers.contract.journal import JournalReader, journal_end
from trainers.contract.lock_note import read_note
from trainers.contract.newer import why_read_only
from trainers.contract.rundir import RunDir
from trainers.contract.runs import find_run, summarise
from trainers.launch import LaunchError
from tuiapp.state.condition import describe_checkpoint
from tuiapp.state.text import join_words, sanitize
from tuiapp.verbs.facts import UsageError, resume_hint
from tuiapp.verbs.sources import runs_dir

POLL_S = 0.05
STOP_TIMEOUT_S = 180.0
"""Above what a run takes at most before it ends its ranks by force: an evaluation, then a checkpoint on a slow disk."""
SAVE_TIMEOUT_S = 180.0
TROUBLE_EVERY_S = 0.5


def stop_run(options: Namespace) -> int:
    """Ask a run to stop, and wait until it has."""
    run, reader = _ask(options, "stop-now" if options.now else "stop")
    print(f"stopping {sanitize(run.run_id)} …", file=sys.stderr)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    trouble = _Trouble(run)
    while run.is_live():
        trouble.tell()
        if time.monotonic() > deadline:
            print(f"tuiapp: it has not stopped yet. At once: tuiapp stop --now {sanitize(run.run_id)}", file=sys.stderr)
            return 1
        time.sleep(POLL_S)
    events = _read_all(reader)
    saved = next((event for event in reversed(events) if isinstance(event, Checkpoint)), None)
    info = summarise(run)
    what = describe_checkpoint(saved) if saved else "no checkpoint since"
    print(join_words([f"{info.status}: {sanitize(info.reason)}", what]), file=sys.stderr)
    _tell_troubles(events)
    if info.status != "completed" and (hint := resume_hint(run)):
        print(hint, file=sys.stderr)
    return 0


def save_checkpoint(options: Namespace) -> int:
    """Ask a run for a checkpoint, wait until it is on the disk, print its directory."""
    run, reader = _ask(options, "checkpoint")
    print(f"asked {sanitize(run.run_id)} for a checkpoint …", file=sys.stderr)
    deadline = time.monotonic() + SAVE_TIMEOUT_S
    asked_at: float | None = None
    saved: Checkpoint | None = None
    live, trouble = True, _Trouble(run)
    while live and time.monotonic() < deadline:
        # Asked before the read, so that what is written in between is still seen.
        live = run.is_live()
        for event in (events := _read_all(reader)):
            if isinstance(event, CheckpointRequested) and asked_at is None:
                asked_at = event.mono
            # One whose arrays were taken before the run heard of it is another one, on its way already.
            if isinstance(event, Checkpoint) and asked_at is not None and event.mono - event.seconds >= asked_at:
                return _print_saved(run, event)
            if isinstance(event, Checkpoint):
                saved = event
        if _tell_troubles(events):
            return 1
        trouble.tell()
        time.sleep(POLL_S)
    if live:
        print(
            f"tuiapp: no checkpoint within {SAVE_TIMEOUT_S:.0f} s; the run goes on and may still save it.",
            file=sys.stderr,
        )
        return 1
    if saved is not None:
        return _print_saved(run, saved)
    print(f"tuiapp: {sanitize(run.run_id)} ended before it saved one: {summarise(run).status}.", file=sys.stderr)
    return 1


class _Trouble:
    """Tells, once, why a run that is waited for cannot answer."""

    def __init__(self, run: RunDir) -> None:
        self._run, self._told, self._look_at = run, False, 0.0

    def tell(self) -> None:
        if self._told or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + TROUBLE_EVERY_S
        if trouble := read_note(self._run).trouble:
            print(f"tuiapp: {sanitize(trouble)}", file=sys.stderr)
            self._told = True


def _ask(options: Namespace, command: mailbox.Command) -> tuple[RunDir, JournalReader]:
    """Send a command to the run that is meant.

    Returns:
        The run, and a reader of what it writes from now on.
    """
    run = find_run(options.run, runs_dir(options))
    if reason := why_read_only(run):
        raise UsageError(f"{run.run_id} cannot be asked for that: {reason}.")
    if not run.is_live():
        raise UsageError(f"{run.run_id} is not running: {summarise(run).status}.")
    reader = JournalReader(run.journal, journal_end(run.journal))
    try:
        mailbox.send(run.commands, command)
    except OSError as error:
        raise LaunchError(f"Cannot write to {run.commands}: {error.strerror}.") from error
    return run, reader


def _read_all(reader: JournalReader) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    while more := reader.read():
        events += more
    return events


def _print_saved(run: RunDir, saved: Checkpoint) -> int:
    print(describe_checkpoint(saved), file=sys.stderr)
    print(sanitize(str(run.checkpoints / saved.name)))
    return 0


def _tell_troubles(events: list[AnyEvent]) -> bool:
    """Say what went wrong with saving; whether anything did."""
    troubles = [event for event in events if isinstance(event, Alert) and event.kind == "checkpoint"]
    for alert in troubles:
        print(f"tuiapp: {sanitize(alert.text)}", file=sys.stderr)
    return bool(troubles)
