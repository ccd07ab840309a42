"""Which earlier run `init(id=…, resume=…)` goes on with, as wandb has it.

The id that a script gives its run is a file in the run's directory; a run's own id means it, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tuiapp.trainers.config.files import printable, read_limited, write_atomically
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.run.disk_full_safe_stdio import say

if TYPE_CHECKING:
    from pathlib import Path

END_S = 5.0
"""Time from a run's last rank to the release of its lock."""
MAX_ID_CHARACTERS = 128
LOOKED_AT = 200
"""Runs, the newest first, among which `resume="auto"` looks for the script's last."""
HOW = ("allow", "must", "never", "auto")


class ResumeError(ValueError):
    """The run that `init` is to go on with, or that must not be there, is not, or is: the message says which."""


class Wanted(NamedTuple):
    id: str = ""
    resume: str = ""
    """One of `HOW`; "" for a new run, whatever there is."""

    @property
    def goes_on(self) -> bool:
        """Tells whether an earlier run may be gone on with."""
        return self.resume in ("allow", "must", "auto")


def read_wanted(id: object, resume: object) -> Wanted:
    """Reads the arguments of `init`; raises ResumeError."""
    text = "" if id is None else str(id).strip()
    if len(text) > MAX_ID_CHARACTERS or not text.isprintable():
        raise ResumeError(f"id={text[:20]!r}… is no run's id: use at most {MAX_ID_CHARACTERS} printable characters")
    how = {"True": "auto", "False": "", "None": ""}.get(str(resume), str(resume))
    if how and how not in HOW:
        raise ResumeError(f"resume={resume!r} is none of {', '.join(map(repr, HOW))}, True, False and None")
    if how == "must" and not text:
        raise ResumeError('resume="must" needs the id of the run to go on with: init(id=…)')
    return Wanted(text, how)


def given_id(run: RunDir) -> str:
    """Returns the id that a script has given its run; "" if none."""
    try:
        return read_limited(run.given_id, 4 * MAX_ID_CHARACTERS)
    except (OSError, ValueError):
        return ""


def keep_id(run: RunDir, id: str) -> None:
    """Keeps the id that a script gives its run."""
    if id and id != run.run_id and given_id(run) != id:
        with suppress(OSError):
            write_atomically(run.given_id, id.encode())


def choose(runs_dir: Path, wanted: Wanted) -> RunDir | None:
    """Returns the earlier run to go on with; None to begin one. Raises ResumeError."""
    earlier = _find(runs_dir, wanted.id) if wanted.id else _crashed(runs_dir) if wanted.resume == "auto" else None
    if earlier is None:
        if wanted.resume == "must":
            raise ResumeError(_nowhere(runs_dir, wanted))
        return None
    if wanted.resume == "never":
        raise ResumeError(f'there is a run {wanted.id} already, which resume="never" rules out: {earlier.path}')
    if not wanted.resume:
        hint = 'to go on with that one: resume="allow"'
        say(f"there is a run {wanted.id} already, {earlier.run_id}; this is another; {hint}")
        return None
    if not earlier.wait_until_over(END_S):
        raise ResumeError(f"{wanted.id or earlier.run_id} is live: another process reports to it, {earlier.path}")
    return earlier


def check_launched(launched: RunDir, wanted: Wanted, *, resumes: bool) -> bool:
    """Tells whether a run that `tuiapp run` has begun or, if it `resumes`, goes on with, is an earlier one of that id.

    Raises ResumeError if it is not that which it must be.
    """
    earlier = _find(launched.path.parent, wanted.id) if wanted.id else None
    if earlier == launched or not wanted.id:
        if resumes and wanted.id and wanted.resume == "never":
            raise ResumeError(f'this goes on with {wanted.id}, which resume="never" rules out')
        if resumes or wanted.resume != "must":
            return resumes and wanted.goes_on
        # Another rank has given it this id.
        earlier = None
    if earlier is None:
        if wanted.resume == "must":
            raise ResumeError(_nowhere(launched.path.parent, wanted))
        return False
    how = f"there is a run {wanted.id} already, and `tuiapp run` has begun another"
    how = f"{how}; to go on with that one: tuiapp run --resume {earlier.run_id}"
    if wanted.resume in ("must", "never"):
        raise ResumeError(how)
    say(how)
    return False


def last_step(run: RunDir) -> int:
    """Returns the last step of the attempts before the present one; 0 if not known."""
    try:
        return int(read_limited(run.last_step, 32))
    except (OSError, ValueError):
        return 0


def _nowhere(runs_dir: Path, wanted: Wanted) -> str:
    return f'there is no run {wanted.id} in {runs_dir}, which resume="must" asks for'


def _find(runs_dir: Path, id: str) -> RunDir | None:
    return next((run for run in reversed(find_run_dirs(runs_dir)) if id in (run.run_id, given_id(run))), None)


def _crashed(runs_dir: Path) -> RunDir | None:
    """Returns the last run that this script has begun in this directory, unless it completed or is live."""
    # Few scripts ask for it: `tuiapp.log` starts sooner without.
    from tuiapp.trainers.launch.begin import this_program
    from tuiapp.trainers.launch.directory import working_directory
    from tuiapp.trainers.state.status import read_config
    from tuiapp.trainers.state.summary import summarise

    here = this_program(), printable(working_directory() or "/")
    for run in find_run_dirs(runs_dir)[: -LOOKED_AT - 1 : -1]:
        with suppress(Exception):
            config = read_config(run)
            if (config.script, config.working_directory) == here:
                return None if run.is_live() or summarise(run).status == "completed" else run
    return None
