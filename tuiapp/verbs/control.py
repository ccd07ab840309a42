"""`tuiapp stop` and `tuiapp checkpoint`: commands to a live run."""

from __future__ import annotations

import contextlib
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

from tuiapp.actions import checkpoint, resume, stop
from tuiapp.actions.action import ActionError, Outcome
from tuiapp.library.find import list_runs, titled
from tuiapp.library.liveness import LivenessProbe
from tuiapp.trainers.contract.events import Alert, AnyEvent, Checkpoint, CheckpointRequested
from tuiapp.trainers.contract.journal import journal_end
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.follow import follow
from tuiapp.trainers.state.messages import describe_alone, describe_checkpoint
from tuiapp.trainers.state.status import known
from tuiapp.trainers.state.summary import read_only_reason, run_facts, summarise
from tuiapp.trainers.state.text import join_words, plural, sanitize
from tuiapp.verbs.output import print_json, tell
from tuiapp.verbs.sources import run_of, runs_of

POLL_S = 0.05
STOP_TIMEOUT_S = 180.0
"""Above what a run takes at most before it kills its ranks: an evaluation, then a checkpoint on a slow disk."""
SAVE_TIMEOUT_S = 180.0


def stop_run(options: Namespace) -> int:
    """Requests a stop of the runs that are live, and waits for their ends."""
    runs = runs_of(options)
    live = [run for run in runs if run.is_live()]
    if len(runs) == 1 or not live:
        live = [_live(run, options.runs) for run in runs]
    elif over := len(runs) - len(live):
        tell(f"{plural(over, 'run')} of these {len(runs)} {'has' if over == 1 else 'have'} ended.")
    offsets = {run: journal_end(run.journal) for run in live}
    outcome = stop.do(live, now=options.now)
    code = _tell_problems(outcome)
    for run in outcome.done:
        print(f"stopping {titled(run)} …", file=sys.stderr)
        if alone := describe_alone(known(run).status.begun):
            tell(alone)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    with _on_interrupt("the run still stops" if len(live) == 1 else "the runs still stop"):
        for run in outcome.done:
            code = max(code, _wait_for_end(run, offsets[run], deadline))
    if options.json:
        facts = [_facts(run) for run in outcome.done]
        print_json(facts[0] if len(runs) == 1 else facts, indent=None)
    return code


def _facts(run: RunDir) -> dict[str, object]:
    info = summarise(run)
    return {**run_facts(run, info.status, info.summary), "reason": info.reason}


def _wait_for_end(run: RunDir, offset: int, deadline: float) -> int:
    events: list[AnyEvent] = []
    with LivenessProbe(run) as pulse:
        trouble = _Trouble(pulse)
        for batch in follow(run, offset, pulse, check_every_s=POLL_S):
            events += batch.events
            if batch.events:
                continue
            if not batch.alive:
                break
            trouble.report()
            if time.monotonic() > deadline:
                tell(f"it has not stopped yet. To stop it at once: tuiapp stop --now {run.run_id}")
                return 1
            time.sleep(POLL_S)
    saved = next((event for event in reversed(events) if isinstance(event, Checkpoint)), None)
    info = summarise(run)
    what = describe_checkpoint(saved) if saved else "no new checkpoint"
    print(join_words([f"{info.status}: {sanitize(info.reason)}", what]), file=sys.stderr)
    _print_troubles(events)
    if info.status != "completed" and (hint := resume.hint(run)):
        print(hint, file=sys.stderr)
    return 0


def save_checkpoint(options: Namespace) -> int:
    """Requests a checkpoint, waits until it is committed, and prints its directory."""
    run = _live(run_of(options), [options.run])
    offset = journal_end(run.journal)
    outcome = checkpoint.do(run)
    _tell_problems(outcome)
    print(*outcome.of("information"), file=sys.stderr)
    with _on_interrupt("the run continues and may still save it"), LivenessProbe(run) as pulse:
        return _wait_for_checkpoint(run, pulse, offset)


def _wait_for_checkpoint(run: RunDir, pulse: LivenessProbe, offset: int) -> int:
    deadline = time.monotonic() + SAVE_TIMEOUT_S
    answers, trouble = _Answers(), _Trouble(pulse)
    for batch in follow(run, offset, pulse, check_every_s=POLL_S):
        if saved := answers.find(batch.events):
            return _print_saved(run, saved)
        if _print_troubles(batch.events):
            return 1
        if batch.events:
            continue
        if not batch.alive:
            break
        trouble.report()
        if pulse.trouble and not pulse.unreachable:
            # Its journal would report the checkpoint.
            tell(f"the run cannot report a checkpoint; if it saves one, it is in {run.checkpoints}.")
            return 1
        if time.monotonic() > deadline:
            tell("no checkpoint yet; the run continues and may still save it.")
            return 1
        time.sleep(POLL_S)
    if answers.saved is not None:
        return _print_saved(run, answers.saved)
    tell(f"{titled(run)} ended before it saved one: {summarise(run).status}.")
    return 1


class _Answers:
    def __init__(self) -> None:
        self._requested_at: float | None = None
        self.saved: Checkpoint | None = None  # the last one that was not requested

    def find(self, events: list[AnyEvent]) -> Checkpoint | None:
        for event in events:
            if isinstance(event, CheckpointRequested) and self._requested_at is None:
                self._requested_at = event.mono
            if isinstance(event, Checkpoint):
                # One whose arrays were copied before the run received the command is a different one.
                if self._requested_at is not None and event.mono - event.seconds >= self._requested_at:
                    return event
                self.saved = event
        return None


class _Trouble:
    def __init__(self, pulse: LivenessProbe) -> None:
        self._pulse = pulse
        self._reported: set[tuple[bool, bool]] = set()

    def report(self) -> None:
        # Its text contains a running count of seconds.
        kind = (self._pulse.unreachable, self._pulse.note.over)
        if self._pulse.trouble and kind not in self._reported:
            self._reported.add(kind)
            tell(self._pulse.trouble)


@contextlib.contextmanager
def _on_interrupt(message: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        tell(f"no longer waiting; {message}.")
        raise


def _live(run: RunDir, words: Sequence[str]) -> RunDir:
    """Returns the run that words mean; raises ActionError if it takes no commands or has ended."""
    if reason := read_only_reason(run):
        raise ActionError(f"{run.run_id} takes no commands: {reason}.")
    if not run.is_live():
        others = list_runs(run.path.parent) if [*words] == ["latest"] else []
        live = next((one.run_id for one in others if one.is_live()), None)
        hint = f" The newest live run is {live}." if live else ""
        raise ActionError(f"{titled(run)} is not running: {summarise(run).status}.{hint}")
    return run


def _tell_problems(outcome: Outcome) -> int:
    """Prints what was done otherwise, or not; returns 1 for the latter. Raises ActionError if nothing was done."""
    if not outcome.done:
        raise ActionError("\n".join(outcome.of("error")))
    for text in (*outcome.of("warning"), *outcome.of("error")):
        tell(text)
    return 1 if outcome.of("error") else 0


def _print_saved(run: RunDir, saved: Checkpoint) -> int:
    print(describe_checkpoint(saved), file=sys.stderr)
    print(sanitize(str(run.checkpoints / saved.name)))
    return 0


def _print_troubles(events: list[AnyEvent]) -> bool:
    troubles = [event for event in events if isinstance(event, Alert) and event.kind == "checkpoint"]
    for alert in troubles:
        tell(alert.text)
    return bool(troubles)
