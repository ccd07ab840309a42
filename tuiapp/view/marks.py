"""The letters and colours of marked runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.view.palette import LETTERS

BAND = -1
"""The place of runs that are drawn as a band or, if they are unlike, as a line each of its colour."""


class Places:
    """Gives marked runs the places of their letters and colours: a run keeps its own while others come and go."""

    def __init__(self) -> None:
        self._of: dict[RunDir, int] = {}

    def of(self, runs: Iterable[RunDir], together: Iterable[Sequence[RunDir]] = ()) -> dict[RunDir, int]:
        """Returns the places of these runs, in their order; those that are not among them lose theirs.

        Those of each of `together` have one place. If more are needed than there are letters all are in a band.
        """
        first = {run: group[0] for group in together for run in group}
        of_runs = {run: first.get(run, run) for run in runs}
        kept = {run: self._of.get(run) for run in of_runs.values()}
        taken = set(kept.values())
        free = (place for place in count() if place not in taken)
        self._of = {run: next(free) if place is None else place for run, place in kept.items()}
        is_band = len(kept) > len(LETTERS)
        return {run: BAND if is_band else self._of[one] for run, one in of_runs.items()}
