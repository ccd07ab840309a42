"""Hold, release, move and cancel: what is done with runs that wait in the queue.

One that has started meanwhile does not keep the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuiapp.actions.action import Outcome, each
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.experiments import queue
from tuiapp.trainers.experiments.queue import QueueError
from tuiapp.trainers.state.summary import RunInfo


def waiting(infos: Iterable[RunInfo]) -> list[RunInfo]:
    """Returns the runs that wait in the queue, the next one first."""
    return sorted((info for info in infos if info.waiting is not None), key=lambda info: info.place or 0)


def hold(runs: Sequence[RunDir], *, held: bool) -> Outcome:
    """Keeps runs in the queue until they are released, or releases them."""
    return each(runs, lambda run: queue.change(run.path.parent, run, held=held), error=QueueError)


def move(places: Sequence[tuple[RunDir, int]]) -> Outcome:
    """Moves runs, in this order, each to a place counted from 0."""
    wanted = dict(places)
    return each(wanted, lambda run: queue.move(run.path.parent, run, wanted[run]), error=QueueError)


def cancel(runs: Sequence[RunDir]) -> Outcome:
    """Takes runs out of the queue; they end as stopped."""
    return each(runs, lambda run: queue.cancel(run.path.parent, run), error=QueueError)
