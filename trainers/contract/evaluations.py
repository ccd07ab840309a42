"""A run's evaluations: the last one, and the best, of which the key `best` says by what.

One that only equals the best is no better. Where several ranks of a script report the same figure, that of the first
rank counts, whichever arrives first, as in the header.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

from trainers.contract.events import Metrics
from trainers.contract.metrics import TEST_ACCURACY, TEST_LOSS


class Evaluated(NamedTuple):
    """What an evaluation on the test set came to; None for what is not known or not finite."""

    loss: float | None = None
    accuracy: float | None = None

    def merit(self, by: str) -> float | None:
        """Returns the figure by which evaluations are compared, the higher the better; `by` is the key's value."""
        if by == "accuracy":
            return self.accuracy
        return None if self.loss is None else -self.loss


NEVER = Evaluated()


class Evaluations:
    """Those of a run, with the best of its earlier attempts."""

    def __init__(self, by: str, earlier: Evaluated = NEVER) -> None:
        self._by = by
        self._earlier = earlier
        self._best: dict[int, Evaluated] = {}
        self._last: dict[str, dict[int, float | None]] = {TEST_LOSS: {}, TEST_ACCURACY: {}}
        """Metric → rank → value."""

    def add(self, event: Metrics) -> None:
        """Adds a batch of values; a script may report only one of the figures."""
        rank, reported = event.rank, event.values
        for name, ranks in self._last.items():
            if name in reported:
                ranks[rank] = reported[name][-1]
        figures = zip_longest(reported.get(TEST_LOSS, ()), reported.get(TEST_ACCURACY, ()))
        known = [one for loss, accuracy in figures if (one := Evaluated(loss, accuracy)).merit(self._by) is not None]
        if known:
            self._best[rank] = _best_of(self._by, [self._best.get(rank, self._earlier), *known])

    @property
    def last(self) -> Evaluated:
        loss, accuracy = (ranks[min(ranks)] if ranks else None for ranks in self._last.values())
        return Evaluated(loss, accuracy)

    @property
    def best(self) -> Evaluated:
        return self._best[min(self._best)] if self._best else self._earlier


def _best_of(by: str, evaluated: Iterable[Evaluated]) -> Evaluated:
    """Returns the best of evaluations, of equal ones the first; at least one is known."""
    known = [(merit, one) for one in evaluated if (merit := one.merit(by)) is not None]
    return max(known, key=lambda pair: pair[0])[1]
