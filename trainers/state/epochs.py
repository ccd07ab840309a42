"""What each epoch of a run came to: its mean loss, its seconds, its examples, and the evaluation after it.

An epoch's seconds are those of its steps, by rank 0's clock: waiting for data counts, and so does an attempt's first
step, which may compile; evaluations, checkpoints, and what is compiled before that step do not. A reporter that joins
steps may put two epochs into one entry: its figures are then shared out by their steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from math import isfinite, nan
from operator import mul

import msgspec

from tuiapp.trainers.contract.events import Metrics, RunStarted
from tuiapp.trainers.contract.metrics import (
    EXAMPLES,
    LOSS,
    MAX_STEP,
    STEP_TIME,
    TEST_ACCURACY,
    TEST_LOSS,
    TEST_SECONDS,
    total,
)

MAX_EPOCHS = 4096
"""Most epochs that are kept; the earliest are forgotten."""


class Epoch(msgspec.Struct, array_like=True, gc=False):
    """What is on record of an epoch, in the history in force."""

    number: int
    """The epoch's number, counted from 1."""
    of: int
    """Steps that it has, as `of_examples` is the examples."""
    of_examples: float
    steps: int = 0
    """Steps of rank 0."""
    seconds: float = 0.0
    """Seconds that rank 0's steps took."""
    first_seconds: float | None = None
    """Part of them that an attempt's first step took; None if it is no step of this epoch, or if the
    journal does not have it by itself."""
    examples: float = 0.0
    """Summed over all ranks."""
    total_loss: float = 0.0
    """The sum of the loss over the examples of all ranks."""
    last: int = 0
    """The last step that counts here, of whatever rank."""
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_seconds: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all its steps are on record, of all ranks."""
        # What joined entries are shared out by need not add up to the last digit.
        return self.steps == self.of and abs(self.examples - self.of_examples) < 0.5

    @property
    def loss(self) -> float | None:
        """Mean over its examples, each as of its step, before the update; None if it is not finite."""
        return self.total_loss / self.examples if self.examples and isfinite(self.total_loss) else None

    @property
    def examples_per_second(self) -> float | None:
        """Summed over all ranks."""
        return self.steps * self.of_examples / self.of / self.seconds if self.seconds > 0 else None


@dataclass(slots=True)
class Epochs:
    """The epochs of a run whose journal says how long one is; of others none."""

    _rows: dict[int, Epoch] = field(default_factory=dict)
    _steps: int = 0
    """Steps per epoch; 0 if not known."""
    _batch: float = 0.0
    _first: int = 0
    """The present attempt's first step."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> list[Epoch]:
        """The last `MAX_EPOCHS`, ascending; without what a damaged journal reports of steps that no epoch has."""
        rows = (row for _, row in sorted(self._rows.items()))
        return [row for row in rows if row.steps <= row.of and row.examples < row.of_examples + 0.5]

    @property
    def last_whole(self) -> Epoch | None:
        return next((row for row in reversed(self._rows.values()) if row.is_whole), None)

    def since(self, number: int) -> list[Epoch]:
        """Returns those after an epoch, ascending; costs as much as there are."""
        rows = takewhile(lambda row: row.number > number, reversed(self._rows.values()))
        return [*rows][::-1]

    def begin(self, event: RunStarted, step: int) -> None:
        """Begins an attempt after `step`, and drops each epoch of which earlier ones did more.

        What they did of it up to there is not known by itself: the rest of it is then all that is on record.
        """
        steps = event.steps_per_epoch if 0 < event.steps_per_epoch < MAX_STEP else 0
        batch = event.config.get("global_batch_size")
        batch = float(batch) if isinstance(batch, int) and batch > 0 else 0.0
        if (steps, batch) != (self._steps, self._batch) and self._steps:
            self._rows.clear()
        self._steps, self._batch, self._first = (steps if batch else 0), batch, step + 1
        self._rows = {number: row for number, row in self._rows.items() if row.last <= step}

    def add(self, event: Metrics) -> None:
        if not self._steps:
            return
        values, last = event.values, event.last_step
        if STEP_TIME in values and EXAMPLES in values and LOSS in values and event.first_step:
            self._add_steps(event)
        elif event.rank == 0 and (TEST_LOSS in values or TEST_ACCURACY in values) and last:
            row = self._of(last)
            row.last = max(row.last, last)
            row.test_loss, row.test_accuracy, row.test_seconds = (
                (values.get(name) or [None])[-1] for name in (TEST_LOSS, TEST_ACCURACY, TEST_SECONDS)
            )

    def _add_steps(self, event: Metrics) -> None:
        values, counts, first = event.values, event.counts or [1] * len(event), event.first_step
        seconds, examples, losses = (values[name] for name in (STEP_TIME, EXAMPLES, LOSS))
        row = self._of(first)
        if first == self._first and event.rank == 0 and counts[0] == 1:
            row.first_seconds = (row.first_seconds or 0.0) + (seconds[0] or 0.0)
        within = event.last_step <= row.number * self._steps
        if (within or event.counts is None) and None not in losses and None not in examples:
            # Most events: entry by entry they would cost a reader of a long journal more.
            begin = 0
            while begin < len(counts):
                row = self._of(first + begin)
                end = len(counts) if within else min(len(counts), row.number * self._steps - first + 1)
                part, last = slice(begin, end), event.last_step if within else first + end - 1
                weighted, of = sum(map(mul, losses[part], examples[part])), counts[part]
                _count(row, event.rank, last, sum(of), total(seconds[part], of), total(examples[part]), weighted)
                begin = end
            return
        for count, step_s, size, loss in zip(counts, seconds, examples, losses, strict=True):
            if count > MAX_EPOCHS * self._steps:
                # More than any row is kept of.
                first += count
                continue
            left = count
            while left:
                row = self._of(first)
                here = min(left, row.number * self._steps - first + 1)
                share = (size or 0.0) * here / count
                weighted = share * (nan if loss is None else loss)
                _count(row, event.rank, first + here - 1, here, here * (step_s or 0.0), share, weighted)
                first, left = first + here, left - here

    def _of(self, step: int) -> Epoch:
        number = (step - 1) // self._steps + 1
        row = self._rows.get(number)
        if row is None:
            row = self._rows[number] = Epoch(number, self._steps, self._steps * self._batch)
            if len(self._rows) > MAX_EPOCHS:
                del self._rows[next(iter(self._rows))]
        return row


def _count(row: Epoch, rank: int, last: int, steps: int, seconds: float, examples: float, loss: float) -> None:
    """Adds steps of a rank up to `last`; `loss` is the sum over their examples."""
    row.examples += examples
    row.total_loss += loss
    row.last = max(row.last, last)
    if rank == 0:
        row.steps += steps
        row.seconds += seconds
