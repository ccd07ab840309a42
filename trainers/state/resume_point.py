"""From which checkpoint a run resumes: the newest that is complete, finite, and covered by the journal.

If the journal covers no usable one, the oldest of the others: it leaves the smallest gap in the curve.

The journal covers a checkpoint if it holds its commit, and every rank's steps up to it. Ranks that outlive their
supervisor commit checkpoints that are not in the journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.files import absolute
from tuiapp.trainers.config.options import ConfigError, Problem, shown
from tuiapp.trainers.config.run_config import RunConfig, best_by
from tuiapp.trainers.contract.manifest import (
    ENDING,
    INDEX_ENDING,
    MODEL_FILE,
    CheckpointDir,
    CheckpointError,
    best_checkpoint,
    check_weight_file,
    is_weight_file,
    list_checkpoints,
    misfit,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.snapshot import read_run
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.text import plural

NOT_ENDED = "it has not ended"
NO_CHECKPOINT = "there is no usable checkpoint"
SCRIPT_COMPLETED = "the script has completed, and goes on with other arguments only"
"""Why a run cannot go on, after "cannot be resumed: "."""


def all_made(steps: int) -> str:
    """Says so of a run that has completed."""
    return f"it has made all its {plural(steps, 'step')}"


class ResumePoint(NamedTuple):
    checkpoint: CheckpointDir
    covered: bool

    @property
    def step(self) -> int:
        return self.checkpoint.manifest.step


def resume_points(run: RunDir, checkpoints: Sequence[CheckpointDir]) -> Iterator[ResumePoint]:
    """Yields checkpoints in the order in which they are tried: those that the journal covers, then the others."""
    left = {checkpoint.manifest.step: checkpoint for checkpoint in checkpoints}
    for step in reversed(read_run(run).covered_checkpoints if left else []):
        if step in left:
            yield ResumePoint(left.pop(step), covered=True)
    for _, checkpoint in sorted(left.items()):
        yield ResumePoint(checkpoint, covered=False)


def resume_point(run: RunDir) -> ResumePoint | None:
    """Returns the first finite checkpoint, its files unread; None if there is none."""
    points = resume_points(run, list_checkpoints(run.checkpoints)[0])
    return next((point for point in points if point.checkpoint.manifest.finite), None)


def first_usable(
    points: Iterable[ResumePoint], problems: Sequence[str], config: RunConfig, classes: int
) -> tuple[ResumePoint, list[str]]:
    """Returns the first checkpoint that is complete and holds finite weights, and why others were skipped.

    `problems` says what is wrong with checkpoints not among `points`, which are tried in order. Raises CheckpointError
    if there is none, or an earlier one does not fit the configuration or the data set's present `classes`.
    """
    passed_over = list(problems)
    for point in points:
        checkpoint = point.checkpoint
        if reason := misfit(checkpoint.manifest, config, classes):
            raise CheckpointError(f"{checkpoint.path.name} {reason}")
        if not checkpoint.manifest.finite:
            passed_over.append(f"{checkpoint.path} holds weights that are not finite")
            continue
        try:
            checkpoint.verify()
        except CheckpointError as error:
            passed_over.append(str(error))
        else:
            return point, passed_over
    reasons = "; ".join(passed_over)
    raise CheckpointError(f"{NO_CHECKPOINT}{': ' + reasons if reasons else ''}")


def doubled(config: RunConfig, step: int) -> tuple[str, int]:
    """Returns the key by which a run that has finished at a step is to be trained further, and twice its value."""
    key = "max_steps" if step == config.max_steps else "epochs"
    return key, 2 * int(getattr(config, key))


KEY = "init_from"
INDEX_FILE = MODEL_FILE.removesuffix(ENDING) + INDEX_ENDING


def find_weights(value: str, *, verify: bool = False) -> Path:
    """Returns the file that a value of `init_from` means.

    Of a run that is its best checkpoint's, by the run's own `best`, without an evaluation the newest one's, and without
    a checkpoint that of its export. Raises ConfigError if there is none, or with `verify` if the checkpoint is damaged,
    and for a file, or an index of some, that is something else than its name says.
    """
    path = absolute(value)
    for file in (path, path / MODEL_FILE, path / INDEX_FILE):
        if is_weight_file(file):
            return _checked(file)
    run = RunDir(path)
    if not os.path.isfile(run.config):
        message = f"{shown(value)} is no run, no run's directory, and no {ENDING} file or index of some"
        raise _refused(f"{message}: `tuiapp runs` lists the runs.")
    try:
        checkpoint = _checkpoint(run)
        if checkpoint is not None and verify:
            checkpoint.verify()
    except CheckpointError as error:
        raise _refused(f"{error}: name another checkpoint's directory, or another run.") from error
    if checkpoint is not None:
        return checkpoint.path / MODEL_FILE
    if os.path.isfile(exported := run.export / MODEL_FILE):
        return exported
    raise _refused(f"{run.run_id} has no checkpoint yet, and no {MODEL_FILE} in {run.export}.")


def check_weights(config: RunConfig) -> list[Problem]:
    """Returns the problems of the weights that a new run is to begin with."""
    try:
        if config.init_from:
            find_weights(config.init_from)
    except ConfigError as error:
        return error.problems
    return []


def _checkpoint(run: RunDir) -> CheckpointDir | None:
    """Returns a run's best checkpoint, or else its newest."""
    try:
        by = best_by(read_config(run))
    except (ConfigError, OSError):
        by = best_by(RunConfig())
    finite = [checkpoint for checkpoint in list_checkpoints(run.checkpoints)[0] if checkpoint.manifest.finite]
    return best_checkpoint(finite, by) or next(iter(finite), None)


def _checked(file: Path) -> Path:
    try:
        check_weight_file(file)
    except OSError as error:
        raise _refused(f"{error.filename or file} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise _refused(f"{error}.") from None
    return file


def _refused(message: str) -> ConfigError:
    return ConfigError([Problem(KEY, message)])
