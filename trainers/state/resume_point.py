"""From which checkpoint a run resumes: the newest that is complete, finite, and covered by the journal.

If the journal covers no usable one, the oldest of the others: it leaves the smallest gap in the curve.

The journal covers a checkpoint if it holds its commit, and every rank's steps up to it. Ranks that outlive their
supervisor commit checkpoints that are not in the journal. A journal may have many gigabytes, and what matters is near
its end: it is read backwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.files import open_regular
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Checkpoint, Metrics, RunStarted, decode
from tuiapp.trainers.contract.journal import MAX_LINE_BYTES, lines_back
from tuiapp.trainers.contract.manifest import CheckpointDir, CheckpointError, list_checkpoints, misfit
from tuiapp.trainers.contract.rundir import RunDir

_DECODED = (b'{"type":"metrics",', b'{"type":"checkpoint",', b'{"type":"run-started",')
"""Starts of the lines that are decoded: the type comes first on every line."""


def covered_steps(journal: Path, checkpoints: Mapping[int, int]) -> Iterator[int]:
    """Yields the checkpoints that the journal covers, newest first, reading no further than needed for each.

    That is in the history in force: all of the last attempt, and of each earlier attempt the steps up to the one from
    which a later one resumed, which counts as covered: resuming from it again loses nothing more. `checkpoints`: step →
    number of ranks, or devices, that the run had then.
    """
    undecided = dict(checkpoints)
    committed: set[int] = set()
    reached: dict[int, int] = {}
    for event in _events_backwards(journal):
        if isinstance(event, RunStarted):
            resumed_from = event.resumed_from or 0  # only a script's, which has none of these checkpoints, is unknown
            if resumed_from in undecided:
                yield resumed_from
            undecided = {step: ranks for step, ranks in undecided.items() if step < resumed_from}
            committed.clear()
            reached.clear()
        elif isinstance(event, Checkpoint):
            committed.add(event.step)
        elif event.is_training:
            reached.setdefault(event.rank, event.last_step)
            short = [step for step, ranks in undecided.items() if event.rank < ranks and event.last_step < step]
            for step in short:
                # Rank 0 reports a checkpoint after the steps that lead to it: there is none further back.
                if reached[event.rank] < step or (event.rank == 0 and step not in committed):
                    del undecided[step]
        for step in sorted(committed & undecided.keys(), reverse=True):
            if all(reached.get(rank, -1) >= step for rank in range(undecided[step])):
                del undecided[step]
                yield step
        if not undecided:
            return


def _events_backwards(journal: Path) -> Iterator[RunStarted | Checkpoint | Metrics]:
    try:
        fd = open_regular(journal)
    except OSError:
        return
    try:
        for line in lines_back(fd, MAX_LINE_BYTES):
            if line.startswith(_DECODED) and isinstance(event := decode(line), RunStarted | Checkpoint | Metrics):
                yield event
    except OSError:
        return
    finally:
        os.close(fd)


class ResumePoint(NamedTuple):
    checkpoint: CheckpointDir
    covered: bool

    @property
    def step(self) -> int:
        return self.checkpoint.manifest.step


def resume_points(journal: Path, checkpoints: Sequence[CheckpointDir]) -> Iterator[ResumePoint]:
    """Checkpoints in the order in which they are tried: those that the journal covers, then the others."""
    left = {one.manifest.step: one for one in checkpoints}
    for step in covered_steps(journal, {one.manifest.step: one.manifest.devices for one in checkpoints}):
        yield ResumePoint(left.pop(step), covered=True)
    for _, checkpoint in sorted(left.items()):
        yield ResumePoint(checkpoint, covered=False)


def resume_point(run: RunDir) -> ResumePoint | None:
    """The first finite one, files unread; None if there is none."""
    points = resume_points(run.journal, list_checkpoints(run.checkpoints)[0])
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
    raise CheckpointError(f"there is no usable checkpoint{': ' + reasons if reasons else ''}")


def doubled(config: RunConfig, step: int) -> tuple[str, int]:
    """The key by which a run that has finished at a step is to be trained further, and twice its value."""
    key = "max_steps" if step == config.max_steps else "epochs"
    return key, 2 * int(getattr(config, key))


def has_more(step: int, total_steps: int, status: str) -> bool:
    """Whether a finished run has anything left to do after a checkpoint: steps, or else export and its end."""
    return step < total_steps or (step == total_steps and status in ("lost", "failed"))
