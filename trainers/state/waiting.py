"""Reported values that wait to be added to curves: in bulk they cost little."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from trainers.contract.events import Metrics
from trainers.contract.metrics import EXAMPLES, RATE, STEP_TIME

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


class Queue:
    """Events of the same names, joined: no object per event is left, which garbage collections would visit."""

    def __init__(self) -> None:
        self._steps, self._counts = array("q"), array("q")  # of each entry: its last step, and how many it joins
        self._columns: dict[tuple[str, str], array[float]] = {}  # by name and side: "", "lows" or "highs"
        self._given: dict[str, int] = {}  # how many of its entries each curve has

    def __contains__(self, name: str) -> bool:
        return (name, "") in self._columns if name != RATE else EXAMPLES in self and STEP_TIME in self

    @property
    def names(self) -> list[str]:
        return [name for name, side in self._columns if not side]

    def add(self, event: Metrics, bounded: Iterable[str]) -> None:
        counts = event.counts or [1] * len(event)
        self._steps.fromlist(list(accumulate(counts, initial=event.first_step - 1))[1:])
        self._counts.fromlist(counts)
        for name, column in event.values.items():
            self._append((name, ""), column)
        for side, bounds in (("lows", event.lows), ("highs", event.highs)):
            for name in bounded:
                self._append((name, side), (bounds or {})[name])

    def _append(self, key: tuple[str, str], column: list[float | None]) -> None:
        joined = self._columns.setdefault(key, array("d"))
        try:
            joined.fromlist(column)  # type: ignore[arg-type]
        except TypeError:
            joined.fromlist([NAN if value is None else value for value in column])

    def take(self, name: str) -> Piece | None:
        """Returns what a curve does not have yet; None for nothing."""
        start = self._given.get(name, 0)
        if start == len(self._counts) or name not in self:
            return None
        self._given[name] = len(self._counts)
        steps, counts = self._steps[start:], self._counts[start:]
        if name == RATE:
            examples, seconds = (self._columns[each, ""][start:] for each in (EXAMPLES, STEP_TIME))
            return Piece(steps, examples, None, None, counts, seconds)
        values, lows, highs = (
            column[start:] if (column := self._columns.get((name, side))) is not None else None
            for side in ("", "lows", "highs")
        )
        assert values is not None
        return Piece(steps, values, lows, highs)
