"""How many epochs a script has done, from its metric `epoch` on its way to the journal.

The values are read as `trainers.state.reported_epochs` reads their curve. Where they only name the epoch that a step is
of, the last one counts as done: what is left of it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

MOST = 1e6
"""A larger value is no epoch."""


class EpochMeter:
    """`from_zero` says that an earlier attempt reported epoch 0."""

    def __init__(self, *, from_zero: bool = False) -> None:
        self._last: float | None = None
        self._from_zero = from_zero
        self._named = True
        """Whether all values are whole numbers."""
        self._before, self._trainings = 0, 1
        """Epochs of the trainings before the present one, as they were reported; and how many trainings there are."""

    def add(self, lows: Iterable[float | None], highs: Iterable[float | None]) -> None:
        """Adds the least and the greatest value of each entry."""
        for low, high in zip(lows, highs, strict=True):
            if low is None or high is None or not 0 <= low <= high <= MOST:
                continue
            if self._last is None:
                self._from_zero |= low == 0
            elif low < self._last:
                self._before += ceil(self._last)
                self._trainings += 1
            self._named &= low % 1 == 0 == high % 1
            self._last = high

    @property
    def done(self) -> float | None:
        """None before the first report."""
        if self._last is None:
            return None
        return round(self._before + self._last, 3) + self._trainings * (self._named and self._from_zero)
