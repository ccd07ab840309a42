"""The curves of one rank, and when each step was."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from trainers.contract.events import Steps
from tuiapp.state.columns import STEP_METRICS, Columns, StepMetric, together
from tuiapp.state.entries import Entries, gather, joined
from tuiapp.state.series import Floats, Series

BUCKETS = 4096
"""Of a curve of one of the first ranks."""

SAMPLE_BUCKETS = 1024
"""Of a curve of samples."""

ALL_BUCKETS = 65_536
"""About how many the same curve of all ranks may have: the higher a rank's number, the fewer it gets."""

WAITING_ENTRIES = 8192
"""Entries of events that wait to be laid end to end; taken together they cost a tenth."""

UNSEEN_FACTOR = 12
"""So many times as many entries as a curve has buckets wait to be added to curves that nobody looks at."""

MOST_PARTS = 256
"""In which these entries may lie."""


class RankCurves:
    """What a rank told of each step, in bounded memory.

    Events are put aside, laid end to end when a curve is looked at or enough of them wait, and added to a curve when
    that one is looked at, or to all of them when enough has come together: most curves are hardly ever looked at.

    Args:
        rank: Its number.
    """

    def __init__(self, rank: int = 0) -> None:
        capacity = max(128, min(BUCKETS, ALL_BUCKETS // (rank + 1)))
        self._series = {metric: Series(capacity) for metric in STEP_METRICS}
        self._waiting: list[Steps] = []
        self._waiting_entries: list[Entries] = []
        """They were there before the events that wait."""
        self._entries = 0
        """How many entries wait in either."""
        self._parts: list[Columns] = []
        """What not all curves have been given."""
        self._given: dict[StepMetric, int] = dict.fromkeys(STEP_METRICS, 0)
        """How many of these parts a curve has been given."""
        self._unseen = 0
        """How many entries they have."""
        # Not as many for all ranks: they report in step, and all curves settled at once would hold up a key.
        stagger = 1 - rank % 8 / 16
        self._most_waiting, self._most_unseen = WAITING_ENTRIES * stagger, UNSEEN_FACTOR * capacity * stagger

    def add(self, event: Steps) -> None:
        """Take in a batch of steps."""
        self._waiting.append(event)
        self._grow(len(event.losses))

    def add_entries(self, entries: Entries) -> None:
        """Take in many batches, in order."""
        if self._waiting:
            self._lay_out()
        self._waiting_entries.append(entries)
        self._grow(len(entries))

    def __getitem__(self, metric: StepMetric) -> Series:
        """One of the curves, with all that was taken in."""
        self._lay_out()
        self._give(metric)
        return self._series[metric]

    def truncate(self, step: int) -> None:
        """Forget that step and all later ones."""
        self._settle()
        for series in self._series.values():
            series.truncate(step)

    def _grow(self, entries: int) -> None:
        self._entries += entries
        if self._entries >= self._most_waiting:
            self._lay_out()

    def _lay_out(self) -> None:
        """Lay end to end what waits."""
        events, self._waiting = self._waiting, []
        parts, self._waiting_entries = self._waiting_entries, []
        if not self._entries:
            return
        self._unseen += self._entries
        self._entries = 0
        if events:
            together = gather(events)
            # Out of order: one by one they find their places.
            in_order = Columns(together).in_order
            parts += [together] if in_order else [gather([each]) for each in events]
        whole = Columns(joined(parts))
        self._parts += [whole] if whole.in_order else map(Columns, parts)
        if self._unseen >= self._most_unseen or len(self._parts) >= MOST_PARTS:
            self._settle()

    def _settle(self) -> None:
        """Give all curves what they have not been given."""
        self._lay_out()
        for metric in STEP_METRICS:
            self._give(metric)
        self._parts, self._unseen = [], 0
        self._given = dict.fromkeys(STEP_METRICS, 0)

    def _give(self, metric: StepMetric) -> None:
        parts = self._parts[self._given[metric] :]
        self._given[metric] = len(self._parts)
        for values in together(parts, metric):
            self._series[metric].add(*values)


class SampledCurve:
    """Values that come one at a time, each at the step that the run had reached."""

    def __init__(self) -> None:
        self._series = Series(SAMPLE_BUCKETS)
        self._steps: list[int] = []
        self._values: list[float] = []

    def append(self, step: int, value: float) -> None:
        """Take in a value; steps do not go back but after `truncate`."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= WAITING_ENTRIES:
            self._settle()

    @property
    def series(self) -> Series:
        """All that was taken in."""
        self._settle()
        return self._series

    def truncate(self, step: int) -> None:
        """Forget that step and all later ones."""
        self._settle()
        self._series.truncate(step)

    def _settle(self) -> None:
        if self._steps:
            self._series.add(np.array(self._steps, np.int64), np.array(self._values))
            self._steps, self._values = [], []


class Timeline:
    """When each step was made, in seconds of the run, the time between attempts left out."""

    def __init__(self) -> None:
        self._steps = [0]
        self._times = [0.0]
        self._start: float | None = None
        self._base = 0.0

    def begin(self, time: float, step: int) -> None:
        """An attempt begins.

        Args:
            time: When, in seconds since the epoch.
            step: The one it goes on from; 0 for none.
        """
        self._base = float(np.interp(step, self._steps, self._times))
        keep = max(1, bisect_right(self._steps, step))
        del self._steps[keep:], self._times[keep:]
        self._start = time

    def add(self, time: float, step: int) -> None:
        """A step was made at that time; one that others were ahead of says nothing new."""
        if self._start is None:
            self._start = time
        if step > self._steps[-1]:
            self._steps.append(step)
            self._times.append(max(self._times[-1], self._base + time - self._start))
            if len(self._steps) > BUCKETS:
                del self._steps[1:-1:2], self._times[1:-1:2]

    def seconds(self, steps: Floats) -> Floats:
        """When these steps were, in seconds of the run."""
        return np.interp(steps, self._steps, self._times)

    def steps(self, seconds: Floats) -> Floats:
        """Which steps were made at these seconds of the run."""
        return np.interp(seconds, self._times, self._steps)
