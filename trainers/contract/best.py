"""Which evaluation of a run is its best: the key `best` says by what; one that only equals it is no better."""

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


def evaluations(reported: Metrics) -> list[Evaluated]:
    """Returns the evaluations in a batch of values; a script may report only one of the figures, or none."""
    losses, accuracies = (reported.values.get(name, ()) for name in (TEST_LOSS, TEST_ACCURACY))
    return [Evaluated(*figures) for figures in zip_longest(losses, accuracies)]


def best_of(by: str, evaluated: Iterable[Evaluated]) -> Evaluated:
    """Returns the best of evaluations in their order, of equal ones the first; `NEVER` if none is known."""
    known = [(merit, one) for one in evaluated if (merit := one.merit(by)) is not None]
    return max(known, key=lambda pair: pair[0], default=(None, NEVER))[1]
