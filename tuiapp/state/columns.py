"""Entries of one rank's steps as arrays, as they are added to its curves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tuiapp.state.entries import Entries
from tuiapp.state.series import Floats, Integers

StepMetric: TypeAlias = Literal["loss", "examples/s", "step time", "learning rate", "gradient norm"]

STEP_METRICS: tuple[StepMetric, ...] = ("loss", "examples/s", "step time", "learning rate", "gradient norm")

MAX_COUNT = 2.0**31
"""Of the steps that share an entry."""


class Values(NamedTuple):
    """What is added to a curve, see `Series.add`."""

    steps: Integers
    """Where each value stands: that of a window of steps at its last one."""
    values: Floats
    lows: Floats | None = None
    highs: Floats | None = None


class Columns:
    """What entries tell of each metric. Nothing is worked out before it is asked for.

    Args:
        entries: The entries.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    @cached_property
    def counts(self) -> Floats:
        """Steps per entry; one at least, whatever a journal says."""
        return np.clip(np.nan_to_num(self._of_each(self._entries.counts), nan=1.0), 1.0, MAX_COUNT)

    @cached_property
    def steps(self) -> Integers:
        """Where each entry stands: a window of steps at its last one."""
        sizes = _integers(self._entries.sizes)
        done = np.cumsum(self.counts, dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        before = np.where(starts > 0, done[starts - 1], 0)
        return np.repeat(_integers(self._entries.firsts) - 1 - before, sizes) + done

    @cached_property
    def in_order(self) -> bool:
        """Whether the steps never go back."""
        return not (self.steps[1:] < self.steps[:-1]).any()

    def values(self, metric: StepMetric) -> Values:
        """What is added to one of the curves."""
        entries = self._entries
        if metric == "loss":
            bounds = (_floats(entries.lows), _floats(entries.highs)) if entries.lows else ()
            return Values(self.steps, _floats(entries.losses), *bounds)
        if metric == "gradient norm":
            if not entries.told:
                return Values(self.steps[:0], _floats(b""))
            told = np.repeat(_integers(entries.told) > 0, _integers(entries.sizes))
            return Values(self.steps[told], _floats(entries.norms))
        if metric == "examples/s":
            with np.errstate(divide="ignore", invalid="ignore"):
                return Values(self.steps, _floats(entries.examples) / (_floats(entries.seconds) * self.counts))
        return Values(self.steps, self._of_each(entries.seconds if metric == "step time" else entries.learning_rates))

    def _of_each(self, column: bytes) -> Floats:
        """A column's value of each entry, though it may be one of all."""
        return np.broadcast_to(_floats(column), len(self._entries))


def together(parts: Sequence[Columns], metric: StepMetric) -> list[Values]:
    """What several parts add to one of the curves: all in one, if none goes back behind the one before."""
    told = [part.values(metric) for part in parts]
    if len(told) < 2:
        return told
    steps = np.concatenate([each.steps for each in told])
    if (steps[1:] < steps[:-1]).any():
        return told
    columns = [[each.values for each in told]]
    if any(each.lows is not None for each in told):
        # Where steps have entries of their own, the least and the greatest loss are the loss.
        columns.append([each.values if each.lows is None else each.lows for each in told])
        columns.append([each.values if each.highs is None else each.highs for each in told])
    return [Values(steps, *map(np.concatenate, columns))]


def _floats(data: bytes) -> Floats:
    return np.frombuffer(data, np.float64)


def _integers(data: bytes) -> Integers:
    return np.frombuffer(data, np.int64)
