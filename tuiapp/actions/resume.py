"""Resume: an ended run goes on from its newest checkpoint, or a script is started again, with other keys if wanted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tuiapp.actions.action import ActionError, Outcome, configuration, is_script, no_configuration, unreadable
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import is_examined
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import make_plan, read_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir, default_runs_dir
from tuiapp.trainers.contract.sidecars import Change, change_about
from tuiapp.trainers.launch import Resumed, resume
from tuiapp.trainers.state.resume_point import NO_CHECKPOINT, NOT_ENDED, resume_point
from tuiapp.trainers.state.run_state import RunState, has_more
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import sanitize
from tuiapp.view.run_list import brief

Resumer: TypeAlias = Callable[[RunDir, RunConfig | None], Resumed]
"""Resumes a run, with another configuration if one is given."""

Refused: TypeAlias = Sequence[tuple[str, str]]
"""Names of runs that cannot go on, each with why not."""


@dataclass(frozen=True, slots=True)
class Resumable:
    """A run that has ended, and what it goes on from."""

    run: RunDir
    name: str
    config: RunConfig
    status: str
    step: int | None
    """The checkpoint's step; None of a script."""
    done: int
    """The last step that was made."""


Wanted: TypeAlias = Sequence[tuple[Resumable, RunConfig]]
"""Runs that go on, each with its configuration."""


def refusal(of: RunInfo | RunState) -> str:
    """Says why a run cannot go on, not with another configuration either; "" if it may, as far as is known."""
    if isinstance(of, RunState):
        if of.replayed:
            return "This is a replay. The run itself is in the list of runs (g)."
        if of.removed:
            return "The run's directory was removed."
        if of.reading is not None:
            return "The run is still being read."
    if of.is_live:
        return sentence(NOT_ENDED)
    if isinstance(of, RunInfo):
        return no_configuration(of) or unreadable(of)
    return sentence(NO_CHECKPOINT) if of.resume_step is None and not of.is_script and not of.lost else ""


def sentence(why: str) -> str:
    """Says that a run cannot go on, and why."""
    return f"It cannot be resumed: {why}."


def find(infos: Sequence[RunInfo]) -> tuple[list[Resumable], Refused]:
    """Returns the runs that may go on, and the others."""
    accepted, refused = list[Resumable](), list[tuple[str, str]]()
    for info in infos:
        name, run, done = brief(info), info.directory, info.summary.steps
        try:
            if why := refusal(info):
                raise ActionError(why)
            accepted.append(resumable(run, name, info.status, None, done, script=is_script(info)))
        except ActionError as error:
            refused.append((name, str(error)))
    return accepted, refused


def resumable(run: RunDir, name: str, status: str, step: int | None, done: int, *, script: bool) -> Resumable:
    """Returns what an ended run goes on from: the checkpoint of a `step`, None searches the disk.

    Raises ActionError if it cannot go on. A `script` has no checkpoints of ours.
    """
    if not script and step is None:
        if (point := resume_point(run)) is None:
            raise ActionError(sentence(NO_CHECKPOINT))
        step = point.step
    return Resumable(run, name, configuration(run), status, None if script else step, done)


def go_on(run: RunDir, config: RunConfig, machine: Machine, change: Change) -> Resumed:
    """Resumes a run, and changes what is said of it; raises ConfigError and LaunchError, as `resume`."""
    resumed = resume(run, config, machine)
    if change != Change():
        change_about(run, change)
    return resumed


def do(wanted: Wanted, resumer: Resumer) -> Outcome:
    """Resumes runs, each with its configuration."""
    outcome = Outcome()
    for candidate, config in wanted:
        whose = f"{candidate.name}: " if len(wanted) > 1 else ""
        try:
            notes = resumer(candidate.run, config if config != candidate.config else None).notes
        except Exception as error:  # Shown to the user; the run is unchanged.
            outcome.say(f"{whose}{error or repr(error)}", "error")
        else:
            outcome.done.append(candidate.run)
            if whose:
                outcome.say(candidate.name)
            for note in notes:
                outcome.say(f"{whose}{note}", "warning")
    return outcome


def command(run: RunDir) -> str:
    """Returns the command that resumes a run; "" when it is live, complete, or has no checkpoint to resume from."""
    try:
        # Not plan.json: resuming makes a new plan, whether or not the file is intact.
        config = read_config(run)
        # Except for data that only a launch examines.
        data = read_plan(run.plan).data if is_examined(config.dataset) else None
        plan = make_plan(config, data)
    except (OSError, ValueError, ConfigError, DatasetError):
        return ""
    info = summarise(run)
    if info.status in ("running", "completed") or not info.is_readable:
        return ""
    # A script saves its checkpoints itself.
    if plan.facts and ((point := resume_point(run)) is None or not has_more(point.step, plan.total_steps, info.status)):
        return ""
    name = run.run_id if run.path.parent == default_runs_dir() else shlex.quote(str(run.path))
    return f"tuiapp run --resume {name}"


def hint(run: RunDir) -> str:
    """Returns `command` as a labelled line; "" for none."""
    return sanitize(f"to resume: {text}") if (text := command(run)) else ""
