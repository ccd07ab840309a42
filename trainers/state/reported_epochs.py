"""The epochs of a script that reports a metric `epoch`.

Its values are either how many epochs are done, with fractions, as transformers has it, or the epoch that a step is of,
counted from 0, as Lightning has it, or from 1. Such an epoch ends with the last step that is reported of it, and is
over when the next has begun. Where the values begin anew, as with a second training, epochs are counted on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, isfinite

import numpy as np

from tuiapp.trainers.state.epochs import Epoch
from tuiapp.trainers.state.series import Floats, Integers, Series

MOST = 1e6
"""A larger value is no epoch."""
NEARLY = 1e-3
"""Part of an epoch within which values are equal: they are rounded."""


class ReportedEpoch(Epoch, array_like=True, gc=False):
    """An epoch of a script, which need not say how many examples it has.

    Its loss is the mean of what is reported at its steps, its evaluation among them. Its seconds include what comes
    before its first step; only those of a run's first are counted from its first report on: before, the script starts.
    Of an epoch that is not over `of` is what the ones before it had on average, 0 if that is not known.
    """

    mean_loss: float | None = None

    @property
    def is_whole(self) -> bool:
        return self.steps == self.of

    @property
    def loss(self) -> float | None:
        return self.mean_loss

    @property
    def examples_per_second(self) -> float | None:
        return None


class ReportedEpochs:
    """Where epochs end, by the curve of the metric `epoch`.

    Attributes:
        steps: float64 [marks], ascending, from the step before the first.
        done: float64 [marks]: how many epochs are over after each.
        present: The epoch that the last step is of, counted from 1; 0 before the first report.
        first_step: The first, and the last, of which an epoch was reported.
    """

    def __init__(self, series: Series) -> None:
        steps, (low, high) = series.middles(), series.extremes()
        is_epoch = (low >= 0) & (low <= high) & (high <= MOST)
        steps, low, high = steps[is_epoch], low[is_epoch], high[is_epoch]
        begin = -1.0 if series.first_step == 0 else 0.0
        self.first_step, self.last_step = (int(steps[0]), int(steps[-1])) if len(steps) else (0, 0)
        self._named = named = not ((low % 1).any() or (high % 1).any())
        if named and len(low):
            low = low + (low[0] == 0)
        falls = np.flatnonzero(low[1:] < low[:-1]) + 1
        added = np.zeros(len(low))
        added[falls] = np.ceil(low[falls - 1])
        done = low + np.cumsum(added)
        self._first_done = float(done[0]) if len(done) else 0.0
        self.present = ceil(done[-1] - NEARLY) if len(done) else 0
        ends = np.flatnonzero(done[1:] > done[:-1]) if named else np.arange(len(done))
        self.steps, self.done = np.append(begin, steps[ends]), np.append(0.0, done[ends])
        # Between two reports an epoch may end at any step.
        present = np.ceil(done - NEARLY).astype(np.int64)
        first = np.flatnonzero(np.diff(present, prepend=-1))
        self._begins = present[first], steps[first]
        """Number of each epoch, and the first step at which it is reported."""
        self._since_last = self.last_step - self.steps[-1]
        self._latest = float(steps[ends[-1] + 1] - 1) if named and len(ends) else self.steps[-1]

    @property
    def steps_per_epoch(self) -> float:
        """The mean; 0 as long as it is not known."""
        return float((self.steps[-1] - self.steps[0]) / self.done[-1]) if self.done[-1] else 0.0

    def over(self, *, completed: bool) -> float | None:
        """Returns how many epochs are over; None before the first report.

        An epoch that is only named is over if the training has completed; else as much of it as its steps are of the
        mean of those before it, nothing in the first.
        """
        if not self.present:
            return None
        if not self._named:
            return round(float(self.done[-1]), 3)
        if completed or not self.done[-1]:
            return float(self.present - (not completed))
        return round(min(self.present, float(self.done[-1] + self._since_last / self.steps_per_epoch)), 3)

    def places(self, steps: Floats) -> Floats:
        """Returns how many epochs are done after each step; NaN as long as that is not known."""
        if not self.done[-1]:
            return np.full(len(steps), np.nan)
        beyond = np.maximum(steps - self.steps[-1], 0) / self.steps_per_epoch
        done: Floats = np.interp(steps, self.steps, self.done) + beyond
        return done

    def number_of(self, step: int) -> int:
        """Returns the epoch that a step is of, counted from 1; 0 before the first report.

        One between two that are named, as an evaluation, is of the first.
        """
        if self._named and self.present and step >= self.first_step:
            numbers, begins = self._begins
            return int(numbers[np.searchsorted(begins, step, side="right") - 1])
        if step > self.steps[-1]:
            return self.present
        return max(1, ceil(float(np.interp(step, self.steps, self.done)) - NEARLY))

    def ends_with(self, step: int) -> bool:
        """Returns whether an epoch ends with a step."""
        done = float(self.places(np.array([step], np.float64))[0])
        return done >= 1 - NEARLY and abs(done - round(done)) < NEARLY and step <= self.last_step

    def of(self, total_steps: int) -> int:
        """Returns how many epochs so many steps are; 0 as long as more than one number may be right."""
        if not self.done[-1]:
            return 0
        done, begin = float(self.done[-1]), float(self.steps[0])
        least, most = (total_steps * done / (float(step) - begin) for step in (self._latest, self.steps[-1]))
        epochs = floor(most + NEARLY)
        if epochs < least - NEARLY:
            return ceil(most)
        return epochs if epochs - 1 < least - NEARLY else 0

    def rows(
        self, losses: Sequence[Series], evaluated: Sequence[Series], times: Callable[[Floats], Floats], most: int
    ) -> list[ReportedEpoch]:
        """Returns the last epochs, ascending, with what the run reported at their steps.

        Args:
            losses: The curves of the training loss, of each rank that has one.
            evaluated: The curves of the loss and the accuracy of evaluations.
            times: Returns the second of the run at which each step was made.
            most: How many epochs at most.
        """
        first = max(1, ceil(self._first_done - NEARLY))
        numbers = np.arange(max(first, self.present - most + 1), self.present + 1)
        if not len(numbers):
            return []
        ends = np.rint(np.interp(numbers, self.done, self.steps, right=self.last_step))
        for places, steps, _ in (self._within(series, numbers) for series in evaluated):
            np.maximum.at(ends, places, steps)
        begins = np.concatenate([np.rint(np.interp(numbers[:1] - 1, self.done, self.steps)), ends[:-1]])
        if numbers[0] == first > 1:
            # The run goes on from another one's checkpoint.
            begins[0] = max(begins[0], self.first_step - 1)
        seconds = times(ends) - times(begins)
        if numbers[0] == first:
            begun = min([self.first_step, *(series.first_step for series in losses)])
            since = float(np.diff(times(np.array([begun, ends[0]], np.float64)))[0])
            seconds[0] = since * (ends[0] - begins[0]) / (ends[0] - begun) if ends[0] > begun else 0.0
        test_losses, test_accuracies = (np.full(len(numbers), np.nan) for _ in evaluated)
        for series, column in zip(evaluated, (test_losses, test_accuracies), strict=True):
            places, _, values = self._within(series, numbers)
            column[places] = values
        columns = (numbers, ends - begins, seconds, _mean_within(losses, begins[0], ends), test_losses, test_accuracies)
        expected = round(self.steps_per_epoch)
        return [
            ReportedEpoch(
                int(number),
                int(steps) if number <= self.done[-1] + NEARLY else expected if steps <= expected else 0,
                0.0,
                int(steps),
                max(0.0, took),
                mean_loss=loss if isfinite(loss) else None,
                test_loss=test_loss if isfinite(test_loss) else None,
                test_accuracy=accuracy if isfinite(accuracy) else None,
            )
            for number, steps, took, loss, test_loss, accuracy in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]

    def _within(self, series: Series, numbers: Integers) -> tuple[Integers, Floats, Floats]:
        """Returns the finite values of a curve with their steps, and each one's place among the epochs `numbers`.

        One belongs to the last epoch that has begun before it.
        """
        steps, values = series.middles(), series.means()
        begun, begins = self._begins
        of = np.searchsorted(begins, steps, side="right") - 1
        places = np.where(of >= 0, begun[of], -1) - numbers[0]
        inside = (places >= 0) & (places < len(numbers)) & np.isfinite(values)
        return places[inside], steps[inside], values[inside]


def _mean_within(curves: Sequence[Series], begin: float, ends: Floats) -> Floats:
    """Returns the mean over all curves of what each epoch has; the first begins after the step `begin`."""
    totals, counts = np.zeros(len(ends)), np.zeros(len(ends))
    for series in curves:
        steps, values = series.middles(), series.means()
        inside = (steps > begin) & (steps <= ends[-1]) & np.isfinite(values)
        places = np.searchsorted(ends, steps[inside])
        totals += np.bincount(places, values[inside], len(ends))
        counts += np.bincount(places, minlength=len(ends))
    means: Floats = np.divide(totals, counts, out=np.full(len(ends), np.nan), where=counts > 0)
    return means
