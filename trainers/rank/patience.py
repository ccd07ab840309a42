"""How many evaluations in a row were no better than the best one: `early_stop` of them end the training.

All ranks know the sums of each evaluation, so all come to the same end at the same step without asking each other.
"""

from __future__ import annotations

from tuiapp.trainers.config.run_config import figure_of
from tuiapp.trainers.contract.evaluations import NEVER, Evaluated


class Patience:
    def __init__(self, by: str, limit: int, best: Evaluated = NEVER, spent: int = 0) -> None:
        """`by` is the figure that decides, `limit` the key `early_stop`; `best` and `spent` go on from a checkpoint."""
        self._by, self._limit = by, limit
        self.best = best
        self.spent = spent
        """Evaluations since the best one."""

    def add(self, found: Evaluated) -> None:
        """Counts an evaluation; one without a finite figure is no better."""
        merit, known = found.merit(self._by), self.best.merit(self._by)
        if merit is not None and (known is None or merit > known):
            self.best, self.spent = found, 0
        else:
            self.spent += 1

    @property
    def words(self) -> str:
        """Why the training ends."""
        best = self.best.figure(self._by)
        known = f": the best was {best:.4g}" if best is not None else ""
        return f"early stop: test {figure_of(self._by)[0]} was not the best in {self.spent} evaluations in a row{known}"

    @property
    def is_over(self) -> bool:
        return 0 < self._limit <= self.spent
