"""When each step of a run was made, and what its steps took: over all attempts, as far as they count."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from tuiapp.trainers.contract.evaluations import NEVER, Evaluated
from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.metrics import STEP_TIME, total

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MARKS = 4096
"""Most marks of a timeline; beyond it every second one is dropped, except the first and the last."""


class Earlier(NamedTuple):
    """What a run's earlier attempts count for: all up to the step from which the present one resumes."""

    seconds: float = 0.0
    timed_steps: int = 0
    """Steps of which the speed counts, and the seconds that rank 0 took for them."""
    timed_seconds: float = 0.0
    evaluated: Evaluated = NEVER
    """The extremes of their evaluations."""


class Timeline:
    """When each step was first made, in seconds of the run, without the time between attempts.

    Of an attempt that a later one resumes counts what led to the step from which that resumes: all of it, to its end,
    if it made no further one.

    Attributes:
        steps: int64 [marks], ascending.
        times: float64 [marks]: when each was made.
        timed: float64 [marks]: how many steps up to it count for the run's mean speed; 0 where nobody says so.
        busy: float64 [marks]: the seconds that those took.
        start: When the attempt began, in seconds since the epoch; None before the first.
        base: The second of the run at which it began.
        end: The last second of the run that is known.
    """

    def __init__(self) -> None:
        self.steps, self.times = array("q", [0]), array("d", [0.0])
        self.timed, self.busy = array("d", [0.0]), array("d", [0.0])
        self.start: float | None = None
        self.base = self.end = 0.0

    @property
    def stored(self) -> tuple[list[bytes], float | None, float, float]:
        """What `restored` takes."""
        return [column.tobytes() for column in self._columns], self.start, self.base, self.end

    @classmethod
    def restored(cls, stored: tuple[list[bytes], float | None, float, float]) -> Timeline:
        """Raises ValueError if its parts do not fit each other."""
        timeline = cls()
        columns, timeline.start, timeline.base, timeline.end = stored
        for column, content in zip(timeline._columns, columns, strict=True):
            del column[:]
            column.frombytes(content)
        if len({*map(len, timeline._columns)}) != 1:
            raise ValueError("the columns of a timeline differ in length")
        return timeline

    @property
    def _columns(self) -> tuple[array[int] | array[float], ...]:
        return self.steps, self.times, self.timed, self.busy

    def begin(self, time: float, step: int | None) -> None:
        """Begins an attempt at `time`, in seconds since the epoch, after `step`; 0 for none.

        As long as that is not known, `step` is None: all that earlier attempts did counts.
        """
        self.start, self.base = time, self.end
        if step is None or step >= self.steps[-1]:
            return
        self.base = self.end = self._at(step, self.times)
        timed, busy = self._at(step, self.timed), self._at(step, self.busy)
        keep = max(1, bisect_right(self.steps, step))
        for column in self._columns:
            del column[keep:]
        self.timed[-1], self.busy[-1] = timed, busy

    def add(self, time: float, step: int, timed: int = 0, busy: float = 0.0) -> None:
        """Adds a step made at that time, the furthest so far or not; `timed` more steps took `busy` seconds."""
        self.note(time)
        if step > self.steps[-1]:
            self.steps.append(step)
            self.times.append(max(self.times[-1], self.second(time)))
            self.timed.append(self.timed[-1])
            self.busy.append(self.busy[-1])
            if len(self.steps) > MARKS:
                for column in self._columns:
                    del column[1:-1:2]
        self.timed[-1] += timed
        self.busy[-1] += busy

    def note(self, time: float) -> None:
        """Notes that the attempt went on until that time."""
        if self.start is None:
            self.start = time
        self.end = max(self.end, self.second(time))

    def second(self, time: float) -> float:
        return self.base + time - (self.start or time)

    def seconds(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np  # the supervisor, which asks for nothing here, does without

        return np.interp(steps, self.steps, self.times)

    def _at(self, step: int, column: array[float]) -> float:
        """Returns a column's value at a step before the last mark."""
        after = bisect_right(self.steps, step)
        before = max(0, after - 1)
        share = (step - self.steps[before]) / (self.steps[after] - self.steps[before]) if after else 0.0
        return column[before] + share * (column[after] - column[before])


def warm_after(begun: int, total_steps: int, steps_per_epoch: int) -> int:
    """Returns the step after which an attempt's speed counts: its first epoch, or tenth, compiles and fills caches.

    `begun` is the step from which the attempt resumes, 0 for the beginning.
    """
    left = max(0, total_steps - begun)
    return begun + (steps_per_epoch if left > steps_per_epoch else left // 10)


def timed(event: Metrics, after: int) -> tuple[int, float]:
    """Returns how many steps beyond `after` one event reports the time of, and the seconds that they took."""
    step, steps, seconds = event.first_step, 0, 0.0
    column = event.values[STEP_TIME]
    if step > after and None not in column:
        return event.last_step - step + 1, total(column, event.counts)
    for step_s, count in zip(column, event.counts or repeat(1), strict=False):
        if step > after and step_s is not None:
            steps += count
            seconds += count * step_s
        step += count
    return steps, seconds
