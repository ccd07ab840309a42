"""Reported values that wait to be added to curves: in bulk they cost little."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.metrics import EXAMPLES, RATE, STEP_TIME

NAN = float("nan")


class Piece(NamedTuple):
    """Values of one metric in the order in which they came; of a rate what it follows from."""

    steps: array[int]
    values: array[float]
    """Of a rate the examples."""
    lows: array[float] | None
    """None: an entry of a single step is its own minimum and maximum."""
    highs: array[float] | None
    counts: array[int] | None = None
    """Of a rate, as `seconds`: steps per entry, and seconds per step."""
    seconds: array[float] | None = None
    weights: array[float] | None = None
    """What each counts in means; None: all alike."""


class Queue:
    """Events of the same names in the same order, joined: no object per event is left, which garbage collections visit.

    Args:
        names: Of the values.
        bounded: Those of them that have lows and highs.
    """

    def __init__(self, names: Iterable[str], bounded: Iterable[str]) -> None:
        self._steps, self._counts = array("q"), array("q")  # of each entry: its last step, and how many it joins
        self._values = {name: array("d") for name in names}
        self._lows, self._highs = ({name: array("d") for name in bounded} for _ in range(2))
        self._given: dict[str, int] = {}  # how many of its entries each curve has

    def __contains__(self, name: str) -> bool:
        return name in self._values if name != RATE else EXAMPLES in self and STEP_TIME in self

    @property
    def names(self) -> list[str]:
        return [*self._values]

    def add(self, event: Metrics) -> None:
        counts = event.counts or [1] * len(event)
        self._steps.fromlist(list(accumulate(counts, initial=event.first_step - 1))[1:])
        self._counts.fromlist(counts)
        # Not looked up by name: an event may have thousands.
        for joined, column in zip(self._values.values(), event.values.values(), strict=True):
            _append(joined, column)
        for side, bounds in ((self._lows, event.lows), (self._highs, event.highs)):
            for name, joined in side.items():
                _append(joined, (bounds or {})[name])

    def take(self, name: str, share: float = 0.0) -> Piece | None:
        """Returns what a curve does not have yet; None for nothing.

        With a `share`, examples of a step, values count by their examples as multiples of that.
        """
        start = self._given.get(name, 0)
        if start == len(self._counts) or name not in self:
            return None
        self._given[name] = len(self._counts)
        steps, counts = self._steps[start:], self._counts[start:]
        if name == RATE:
            examples, seconds = (self._values[each][start:] for each in (EXAMPLES, STEP_TIME))
            return Piece(steps, examples, None, None, counts, seconds)
        lows, highs = (side[name][start:] if name in side else None for side in (self._lows, self._highs))
        weights = None
        if share and EXAMPLES in self:
            sizes = self._values[EXAMPLES][start:]
            weights = array("d", [size / (count * share) for size, count in zip(sizes, counts, strict=True)])
        return Piece(steps, self._values[name][start:], lows, highs, weights=weights)


def _append(joined: array[float], column: list[float | None]) -> None:
    try:
        joined.fromlist(column)  # type: ignore[arg-type]
    except TypeError:
        joined.fromlist([NAN if value is None else value for value in column])
