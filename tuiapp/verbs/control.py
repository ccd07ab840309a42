"""`tuiapp stop`, `checkpoint` and `profile`: commands to live runs, and what comes of them."""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

from tuiapp.actions import checkpoint, profile, resume, stop
from tuiapp.actions.action import ActionError, Outcome
from tuiapp.library.find import list_runs, titled
from tuiapp.library.liveness import LivenessProbe
from tuiapp.trainers.contract.events import Alert, AnyEvent, Checkpoint, CheckpointRequested, Profile
from tuiapp.trainers.contract.journal import journal_end
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.follow import follow
from tuiapp.trainers.state.messages import describe_alone, describe_checkpoint
from tuiapp.trainers.state.status import known
from tuiapp.trainers.state.summary import run_facts, summarise
from tuiapp.trainers.state.text import join_words, plural, sanitize
from tuiapp.verbs.facts import read_through
from tuiapp.verbs.output import UsageError, print_json, tell
from tuiapp.verbs.sources import run_of, runs_of
from tuiapp.view import profile as view

POLL_S = 0.05
STOP_TIMEOUT_S = 180.0
"""Above what a run takes at most before it kills its ranks: an evaluation, then a checkpoint on a slow disk."""
SAVE_TIMEOUT_S = 180.0
OTHERS_S = 20.0
"""How long the other ranks are waited for, once one has reported a profile."""


def stop_run(options: Namespace) -> int:
    """Requests a stop of the runs that are live, and waits for their ends."""
    runs = runs_of(options)
    live = [run for run in runs if run.is_live()]
    if len(runs) == 1:
        live = [_live(runs[0], options.runs)]
    elif not live:
        raise ActionError(f"None of these {len(runs)} runs is running.")
    elif ended := len(runs) - len(live):
        tell(f"{ended} of these {len(runs)} runs had ended")
    offsets = {run: journal_end(run.journal) for run in live}
    outcome = stop.do(live, now=options.now)
    code = tell_problems(outcome)
    for run in outcome.done:
        print(f"stopping {titled(run)} …", file=sys.stderr)
        if alone := describe_alone(known(run).status.begun):
            tell(alone)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    with _on_interrupt("the run still stops" if len(live) == 1 else "the runs still stop"):
        for run in outcome.done:
            code = max(code, _wait_for_end(run, offsets[run], deadline, f"{titled(run)}: " if runs[1:] else ""))
    if options.json:
        infos = [summarise(run) for run in outcome.done]
        facts = [{**run_facts(info.directory, info.status, info.summary), "reason": info.reason} for info in infos]
        print_json(facts[0] if len(runs) == 1 else facts, indent=None)
    return code


def _wait_for_end(run: RunDir, offset: int, deadline: float, whose: str) -> int:
    events: list[AnyEvent] = []
    for heard, _ in _replies(run, offset):
        events += heard
        if not heard and time.monotonic() > deadline:
            tell(f"{whose or 'it '}has not stopped yet. To stop it at once: tuiapp stop --now {run.run_id}")
            return 1
    saved = next((event for event in reversed(events) if isinstance(event, Checkpoint)), None)
    info = summarise(run)
    what = describe_checkpoint(saved) if saved else "no new checkpoint"
    print(whose + join_words([f"{info.status}: {sanitize(info.reason)}", what]), file=sys.stderr)
    _print_troubles(events)
    if info.status != "completed" and (hint := resume.hint(run)):
        print(hint, file=sys.stderr)
    return 0


def save_checkpoint(options: Namespace) -> int:
    """Requests a checkpoint, waits until it is committed, and prints its directory."""
    run = _live(run_of(options), [options.run])
    offset = journal_end(run.journal)
    outcome = checkpoint.do(run)
    tell_problems(outcome)
    print(*outcome.of("information"), file=sys.stderr)
    with _on_interrupt("the run continues and may still save it"):
        return _wait_for_checkpoint(run, offset, time.monotonic() + SAVE_TIMEOUT_S)


def _wait_for_checkpoint(run: RunDir, offset: int, deadline: float) -> int:
    requested_at = math.inf
    earlier: Checkpoint | None = None
    for heard, is_mute in _replies(run, offset):
        for event in heard:
            if isinstance(event, CheckpointRequested):
                requested_at = min(requested_at, event.mono)
            if isinstance(event, Checkpoint):
                # One whose arrays were copied before the run received the command is a different one.
                if event.mono - event.seconds >= requested_at:
                    return _print_saved(run, event)
                earlier = event
        if _print_troubles(heard):
            return 1
        if is_mute:
            # Its journal would report the checkpoint.
            tell(f"the run cannot report a checkpoint; if it saves one, it is in {run.checkpoints}.")
            return 1
        if not heard and time.monotonic() > deadline:
            tell("no checkpoint yet; the run continues and may still save it.")
            return 1
    if earlier is not None:
        return _print_saved(run, earlier)
    tell(f"{titled(run)} ended before it saved one: {summarise(run).status}.")
    return 1


def profile_run(options: Namespace) -> int:
    """Has the next steps profiled, and prints where their time went; of an ended run, what was profiled last."""
    run = run_of(options)
    info = summarise(run)
    if not run.is_live():
        profiles = view.latest(read_through(info).profiles)
        if not profiles:
            raise UsageError(f"{titled(run)} is not running ({info.status}), and none of its steps were profiled.")
        return _print_profiles(profiles, options)
    if why := profile.refusal(info.status, info.config.backend if info.config else ""):
        raise ActionError(f"{run.run_id}: {why}")
    offset = journal_end(run.journal)
    tell_problems(profile.do(run, options.steps))
    tell(f"profiling {plural(options.steps, 'step')} of {titled(run)} …")
    with _on_interrupt("the steps are still profiled"):
        profiles, failure = _wait_for_profiles(run, offset)
    if not profiles and not failure:
        failure = f"{titled(run)} ended before the steps were profiled: {summarise(run).status}."
    if failure:
        tell(failure)
    return _print_profiles(profiles, options) if profiles else 1


def _wait_for_profiles(run: RunDir, offset: int) -> tuple[list[Profile], str]:
    """Returns the profiles of all ranks, of fewer if the run ends or the others take too long; and why one failed."""
    begun = known(run).status.begun
    ranks = begun.world_size if begun else 1
    profiles: dict[int, Profile] = {}
    failed: dict[int | None, str] = {}
    give_up = math.inf
    for heard, _ in _replies(run, offset):
        for event in heard:
            if isinstance(event, Profile):
                profiles[event.rank] = event
            elif isinstance(event, Alert) and event.kind == "profile":
                failed[event.rank] = event.text
            else:
                continue
            give_up = min(give_up, time.monotonic() + OTHERS_S)
        if len(profiles) + len(failed) >= ranks or time.monotonic() > give_up:
            break
    return view.latest(profiles), next(iter(failed.values()), "")


def _print_profiles(profiles: Sequence[Profile], options: Namespace) -> int:
    if options.json:
        print_json(view.facts(profiles))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
        print("\n".join(view.lines(profiles, width)))
    return 0


def _replies(run: RunDir, offset: int) -> Iterator[tuple[list[AnyEvent], bool]]:
    """Yields what a run journals until its end, nothing while it is silent, and whether it cannot write its journal.

    It tells what is in the way, each kind of trouble once.
    """
    troubles = set[tuple[bool, bool]]()
    with LivenessProbe(run) as pulse:
        for batch in follow(run, offset, pulse, check_every_s=POLL_S):
            if not batch.events and not batch.alive:
                return
            # Its text contains a running count of seconds.
            kind = (pulse.unreachable, pulse.note.over)
            if not batch.events and pulse.trouble and kind not in troubles:
                troubles.add(kind)
                tell(pulse.trouble)
            yield batch.events, not batch.events and bool(pulse.trouble) and not pulse.unreachable
            if not batch.events:
                time.sleep(POLL_S)


@contextlib.contextmanager
def _on_interrupt(message: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        tell(f"no longer waiting; {message}.")
        raise


def _live(run: RunDir, words: Sequence[str]) -> RunDir:
    """Returns the run that words mean; raises ActionError if it has ended."""
    if not run.is_live():
        candidates = list_runs(run.path.parent) if [*words] == ["latest"] else []
        live = next((candidate.run_id for candidate in candidates if candidate.is_live()), None)
        hint = f" The newest live run is {live}." if live else ""
        raise ActionError(f"{titled(run)} is not running: {summarise(run).status}.{hint}")
    return run


def tell_problems(outcome: Outcome) -> int:
    """Prints what was done otherwise, or not; returns 1 for the latter. Raises ActionError if none of it was done."""
    if not outcome.done and (errors := outcome.of("error")):
        raise ActionError("\n".join(errors))
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
