"""A run's evaluations: the last one, the least loss, the greatest accuracy, and which is the best of all.

The key `best` says by which figure an evaluation is the best; where that is equal, the other one decides. Where several
ranks of a script report the same figure, that of the first rank counts, whichever arrives first, as in the header.
They are those of one held-out group: `test` or, of a script that names it otherwise, that of `evaluation_of`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from tuiapp.trainers.config.run_config import figure_of
from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.metrics import HELD_OUT, evaluation_of


class Evaluated(NamedTuple):
    """What an evaluation on the test set came to; None for what is not known or not finite."""

    loss: float | None = None
    accuracy: float | None = None
    own: float | None = None
    """The metric of the user's own that the key `best` names, …"""
    by: str = ""
    """… and that key's value: another metric's figures cannot be compared with it."""

    def figure(self, by: str) -> float | None:
        """Returns the figure that evaluations are the best by; `by` is the key's value."""
        return {"accuracy": self.accuracy, "loss": self.loss, self.by: self.own}.get(by)

    def merit(self, by: str) -> tuple[float, float] | None:
        """Returns what evaluations are compared by, the higher the better; `by` is the key's value.

        None if the figure of that name is not known.
        """
        if (figure := self.figure(by)) is None:
            return None
        loss = -inf if self.loss is None else -self.loss
        accuracy = -inf if self.accuracy is None else self.accuracy
        return (figure if figure_of(by)[1] else -figure, accuracy if by == "loss" else loss)


NEVER = Evaluated()


def extremes(evaluated: Iterable[Evaluated]) -> Evaluated:
    """Returns the least loss and the greatest accuracy of evaluations, which may be of two of them."""
    losses, accuracies, *_ = zip(NEVER, *evaluated, strict=True)
    return Evaluated(
        min((loss for loss in losses if loss is not None), default=None),
        max((accuracy for accuracy in accuracies if accuracy is not None), default=None),
    )


class Evaluations:
    """A run's evaluations; `earlier` has the extremes of its earlier attempts."""

    def __init__(self, earlier: Evaluated = NEVER) -> None:
        self._earlier = earlier
        self._best: dict[int, Evaluated] = {}
        """Rank → its extremes."""
        self._last: tuple[dict[int, tuple[int, float | None]], dict[int, tuple[int, float | None]]] = {}, {}
        """For loss and accuracy: rank → furthest step, and its value."""
        self.group = ""
        """The held-out group whose evaluations these are; "" before the first."""

    def add(self, event: Metrics) -> None:
        """Adds a batch of values; a script may report only one of the figures."""
        rank, reported = event.rank, event.values
        group, *names = evaluation_of(reported)
        if not group or (self.group and HELD_OUT.index(group) > HELD_OUT.index(self.group)):
            return
        if group != self.group:
            self.group, self._last, self._best = group, ({}, {}), {}
        for name, ranks in zip(names, self._last, strict=True):
            if name and event.last_step >= ranks.get(rank, (0, None))[0]:
                ranks[rank] = event.last_step, reported[name][-1]
        losses, accuracies = (reported.get(name, ()) for name in names)
        evaluated = [
            *(Evaluated(loss=loss) for loss in losses),
            *(Evaluated(accuracy=accuracy) for accuracy in accuracies),
        ]
        if evaluated:
            self._best[rank] = extremes([self._best.get(rank, NEVER), *evaluated])

    @property
    def last(self) -> Evaluated:
        loss, accuracy = (ranks[min(ranks)][1] if ranks else None for ranks in self._last)
        return Evaluated(loss, accuracy)

    @property
    def best(self) -> Evaluated:
        """The least loss and the greatest accuracy."""
        return extremes([self._earlier, self._best[min(self._best)] if self._best else NEVER])
