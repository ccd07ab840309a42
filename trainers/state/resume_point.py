"""From which checkpoint a run resumes: the newest that is complete, finite, and covered by the journal.

If the journal covers no usable one, the oldest of the others: it leaves the smallest gap in the curve.

The journal covers a checkpoint if it holds its commit, and every rank's steps up to it. Ranks that outlive their
supervisor commit checkpoints that are not in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.manifest import CheckpointDir, CheckpointError, list_checkpoints, misfit
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.snapshot import read_run
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
    """Checkpoints in the order in which they are tried: those that the journal covers, then the others."""
    left = {one.manifest.step: one for one in checkpoints}
    for step in reversed(read_run(run).covered_checkpoints if left else []):
        if step in left:
            yield ResumePoint(left.pop(step), covered=True)
    for _, checkpoint in sorted(left.items()):
        yield ResumePoint(checkpoint, covered=False)


def resume_point(run: RunDir) -> ResumePoint | None:
    """The first finite one, files unread; None if there is none."""
    points = resume_points(run, list_checkpoints(run.checkpoints)[0])
    return next((point for point in points if point.checkpoint.manifest.finite), None)


def first_usable(
    points: Iterable[ResumePoint], problems: Sequence[str], config: RunConfig, classes: int
) -> tuple[ResumePoint, list[str]]:
    """The first checkpoint that is complete and holds finite weights; and why others were skipped.

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
    """The key by which a run that has finished at a step is to be trained further, and twice its value."""
    key = "max_steps" if step == config.max_steps else "epochs"
    return key, 2 * int(getattr(config, key))
