"""Stop: a run saves a checkpoint and ends, or at once without one; one that has not begun leaves its queue."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tuiapp.actions.action import Outcome, Question, is_script, some
from tuiapp.actions.command import request
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.messages import describe_alone
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import format_duration, join_words, plural, sanitize
from tuiapp.view.run_list import title

Waits: TypeAlias = Literal["", "queue", "Slurm"]

RUN_ON = ("run-on", "Keep running", "default")
NOW = [("wait", "Keep waiting", "default"), ("stop-now", "Stop now", "error")]


@dataclass(frozen=True, slots=True)
class Stoppable:
    """What a question says of a run."""

    run: RunDir
    title: str
    grace_s: float | None
    """A script's time from SIGTERM to SIGKILL; None of a built-in trainer, and where none is sent."""
    waits: Waits
    alone: str
    """What a stop does not end."""

    @classmethod
    def of_info(cls, info: RunInfo) -> Stoppable:
        """Returns what is known of a listed run."""
        grace_s = info.config.stop_grace_s if info.config and is_script(info) else None
        waits: Waits = "queue" if info.waiting else "Slurm" if info.status == "queued" else ""
        return cls(info.directory, title(info), grace_s, waits, describe_alone(info.begun))

    @classmethod
    def of_state(cls, run: RunDir, state: RunState) -> Stoppable:
        """Returns what is known of a watched run."""
        waits: Waits = ("Slurm" if state.queued.job else "queue") if state.queued and state.status == "queued" else ""
        alone = describe_alone(state.started, state.awaited_nodes)
        return cls(run, join_words([state.name, sanitize(run.run_id)]), state.sigterm_grace_s, waits, alone)


def refusal(of: RunInfo | RunState) -> str:
    """Says why a run cannot be stopped; "" if it can."""
    return "" if of.is_live else "The run has ended: there is nothing to stop."


def question(runs: Sequence[Stoppable], *, again: bool = False, others: int = 0) -> Question:
    """Asks whether to stop runs, at once those that are stopping (`again`); `others` are over, or stopping already."""
    remark = f"\nThe rest of the {len(runs) + others} are over, or stopping already." if others else ""
    if len(runs) == 1:
        heading, text, answers = _of_one(runs[0], again=again)
        return Question(heading, text + remark, answers)
    if again:
        how = "They are stopping. Stop now ends their ranks at once, without another checkpoint."
        answers = NOW
    else:
        how = "Each saves a checkpoint after the step that its ranks agree on, and ends."
        if any(run.grace_s is not None for run in runs):
            how += " A script that does not ask should_stop() gets SIGTERM."
        if any(run.waits for run in runs):
            how += " One that is queued does not start."
        answers = [("stop", "Stop them", "warning"), RUN_ON]
    return Question(f"Stop {len(runs)} runs{' now' if again else ''}?", f"{_names(runs)}\n \n{how}{remark}", answers)


def _of_one(stoppable: Stoppable, *, again: bool) -> Question:
    answers = [("stop", "Stop", "warning"), RUN_ON]
    if stoppable.waits == "queue":
        heading, what = "Cancel this run?", "has not started. It leaves the queue, and ends."
        answers = [("stop", "Cancel the run", "warning"), ("run-on", "Keep it", "default")]
    elif stoppable.waits:
        heading, what = "Cancel its job?", "has not started. Its Slurm job is cancelled, and the run ends."
        answers = [("stop", "Cancel the job", "warning"), ("run-on", "Keep it", "default")]
    elif again:
        heading, answers = "Stop now?", NOW
        what = "is stopping. Stop now ends the ranks at once, without another checkpoint."
        if stoppable.grace_s is not None:
            what = "was sent SIGTERM. Stop now ends it with SIGKILL after two seconds."
    elif stoppable.grace_s is not None:
        heading, what = "Stop this script?", "ends before its next step if it asks should_stop(). Otherwise it gets "
        what += f"SIGTERM, and SIGKILL if it still runs after {format_duration(stoppable.grace_s)}."
    else:
        heading, answers = "Stop this run?", [("stop", "Stop and save", "warning"), RUN_ON]
        what = "saves a checkpoint after the step that all ranks agree on, and ends. It can be resumed from there."
    return Question(heading, f"{stoppable.title}\n{what} {stoppable.alone}".rstrip(), answers)


def ended(runs: Sequence[Stoppable]) -> Question:
    """Says that runs have ended before they were stopped."""
    heading = "This run has ended" if len(runs) == 1 else "These runs have ended"
    return Question(heading, f"{_names(runs)}\nThere is nothing left to stop.", [("ok", "OK", "default")])


def _names(runs: Sequence[Stoppable]) -> str:
    return some([run.title for run in runs])


def do(runs: Sequence[RunDir], *, now: bool = False) -> Outcome:
    """Asks runs to stop, at once or after a checkpoint; cancels those that wait in the queue."""
    waiting = {run for run in runs if os.path.lexists(run.waits)}
    # What waits first: none of them starts in the place of one that stops.
    outcome = request(sorted(runs, key=lambda run: run not in waiting), "stop-now" if now else "stop")
    # Others have begun meanwhile.
    if cancelled := {run for run in waiting.intersection(outcome.done) if not run.is_live()}:
        outcome.say(f"Cancelled {plural(len(cancelled), 'run')} in the queue.")
    if stopping := len(outcome.done) - len(cancelled):
        outcome.say(f"Asked {plural(stopping, 'run')} to stop{' now' if now else ''}.")
    return outcome
