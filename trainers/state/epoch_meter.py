"""How many epochs a script has done, from its metric `epoch` on its way to the journal.

The values are read as `tuiapp.trainers.state.reported_epochs` reads their curve, of which the journal's writer has no
arrays.
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
        self._begin = self._step = 0
        """The step before the first report, and that of the last."""
        self._from_zero = from_zero
        self._named = True
        """Whether all values are whole numbers."""
        self._before, self._trainings = 0, 1
        """Epochs of the trainings before the present one, as they were reported; and how many trainings there are."""
        self._over, self._over_step = 0.0, 0
        """Epochs that ended before the last one that was named, and the last step of them."""

    def add(self, steps: Iterable[int], lows: Iterable[float | None], highs: Iterable[float | None]) -> None:
        """Adds step, least and greatest value of each entry."""
        for step, low, high in zip(steps, lows, highs, strict=True):
            if low is None or high is None or not 0 <= low <= high <= MOST:
                continue
            self._named &= low % 1 == 0 == high % 1
            if self._last is None:
                self._from_zero |= low == 0
                self._begin = min(0, step - 1)
            elif step == self._step:
                # Of an evaluation after the training, it may be the number of an epoch that nobody trains.
                continue
            else:
                over = self._numbered(self._last)
                if low < self._last:
                    self._before += ceil(self._last)
                    self._trainings += 1
                if self._numbered(low) > over:
                    self._over, self._over_step = over, self._step
            self._last, self._step = high, step

    def done(self, *, completed: bool) -> float | None:
        """Returns how many epochs are done, None before the first report.

        An epoch that is only named is done if the training has completed; else as much of it as its steps are of the
        mean of those before it, nothing in the first.
        """
        if self._last is None:
            return None
        if not self._named:
            return round(self._before + self._last, 3)
        last = self._numbered(self._last)
        if completed:
            return last
        if not self._over:
            return last - 1
        steps_per_epoch = (self._over_step - self._begin) / self._over
        return round(min(last, self._over + (self._step - self._over_step) / steps_per_epoch), 3)

    def _numbered(self, value: float) -> float:
        """Counts from 1, over all trainings."""
        return self._before + value + self._trainings * self._from_zero
