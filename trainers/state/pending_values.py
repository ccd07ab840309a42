"""Reported values that wait to be added to curves: in bulk they cost little."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.metrics import EXAMPLES, RATE, STEP_TIME

NAN = float("nan")


class Piece(NamedTuple):
    """Values of one metric in the order in which they came; of a rate what it follows from."""

    steps: array[int]
    values: array[float]
    """The values; of a rate the examples."""
    bounds: Sequence[array[float] | None] = (None, None, None)
    """The least, the greatest and the last value of each entry; None: an entry of a single value is all of them."""
    counts: array[int] | None = None
    """Steps per entry of a rate; `seconds` has the seconds per step."""
    seconds: array[float] | None = None
    weights: array[float] | None = None
    """What each counts in means; None: all alike."""


class Queue:
    """Events of the same names in the same order, joined: no object per event is left, which garbage collections visit.

    Args:
        names: Of the values.
        bounded: Those of them that have least, greatest and last values.
    """

    def __init__(self, names: Iterable[str], bounded: Sequence[Collection[str]]) -> None:
        self.last_step = -1
        self._steps, self._counts = array("q"), array("q")  # of each entry: its last step, and how many it joins
        self._values = {name: array("d") for name in names}
        self._bounds = [{name: array("d") for name in side} for side in bounded]
        self._given: dict[str, int] = {}  # how many of its entries each curve has

    def __contains__(self, name: str) -> bool:
        return name in self._values if name != RATE else EXAMPLES in self and STEP_TIME in self

    @property
    def names(self) -> list[str]:
        return [*self._values]

    def add(self, event: Metrics) -> None:
        first, counts, size = event.first_step, event.counts, len(event)
        steps = list(accumulate(counts, initial=first - 1))[1:] if counts else list(range(first, first + size))
        self._steps.fromlist(steps)
        self._counts.fromlist(counts or [1] * size)
        self.last_step = max(self.last_step, steps[-1])
        # Not looked up by name: an event may have thousands.
        for joined, column in zip(self._values.values(), event.values.values(), strict=True):
            _append(joined, column)
        for side, bounds in zip(self._bounds, bounds_of(event), strict=True):
            for name, joined in side.items():
                _append(joined, (bounds or {})[name])

    def last(self, name: str) -> float:
        """Returns the value of the last step; NaN if there is none, or it follows from others or did not come last."""
        if self._steps[-1] != self.last_step or name not in self._values:
            return NAN
        return self._bounds[2].get(name, self._values[name])[-1]

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
            examples, seconds = (self._values[column][start:] for column in (EXAMPLES, STEP_TIME))
            return Piece(steps, examples, counts=counts, seconds=seconds)
        bounds = [side[name][start:] if name in side else None for side in self._bounds]
        weights = None
        if share and EXAMPLES in self:
            sizes = self._values[EXAMPLES][start:]
            weights = array("d", [size / (count * share) for size, count in zip(sizes, counts, strict=True)])
        return Piece(steps, self._values[name][start:], bounds, weights=weights)


def bounds_of(event: Metrics) -> tuple[Mapping[str, list[float | None]] | None, ...]:
    """Returns the least, greatest and last values of an event's entries."""
    return event.lows, event.highs, event.lasts


def _append(joined: array[float], column: list[float | None]) -> None:
    try:
        joined.fromlist(column)  # type: ignore[arg-type]
    except TypeError:
        joined.fromlist([NAN if value is None else value for value in column])
