"""The letters and colours of marked runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from trainers.contract.rundir import RunDir
from tuiapp.view.palette import LETTERS

BAND = -1
"""The place of runs that are drawn as a band."""


class Places:
    """Gives marked runs the places of their letters and colours: a run keeps its own while others come and go."""

    def __init__(self) -> None:
        self._of: dict[RunDir, int] = {}

    def of(self, runs: Iterable[RunDir]) -> dict[RunDir, int]:
        """Returns the places of these runs, in their order; those that are not among them lose theirs.

        More runs than there are letters are in a band.
        """
        kept = {run: self._of.get(run) for run in runs}
        taken = set(kept.values())
        free = (place for place in count() if place not in taken)
        self._of = {run: next(free) if place is None else place for run, place in kept.items()}
        return dict(self._of) if len(kept) <= len(LETTERS) else dict.fromkeys(self._of, BAND)
