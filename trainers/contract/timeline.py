"""When each step of a run was made, in bounded memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MARKS = 4096
"""Beyond it every second one is dropped, except the first and the last."""


class Timeline:
    """When each step was first made, in seconds of the run, without the time between attempts.

    Attributes:
        steps: int64 [marks], ascending.
        times: float64 [marks]: when each was made.
        start: When the attempt began, in seconds since the epoch; None before the first.
        base: The second of the run at which it began.
    """

    def __init__(self) -> None:
        self.steps, self.times = array("q", [0]), array("d", [0.0])
        self.start: float | None = None
        self.base = 0.0

    def begin(self, time: float, step: int) -> None:
        """Begins an attempt at `time`, in seconds since the epoch, after `step`; 0 for none."""
        self.base = self._time_of(step)
        keep = max(1, bisect_right(self.steps, step))
        del self.steps[keep:], self.times[keep:]
        self.start = time

    def add(self, time: float, step: int) -> None:
        """Adds a step made at that time; ignored unless it is the furthest so far."""
        if self.start is None:
            self.start = time
        if step > self.steps[-1]:
            self.steps.append(step)
            self.times.append(max(self.times[-1], self.base + time - self.start))
            if len(self.steps) > MARKS:
                del self.steps[1:-1:2], self.times[1:-1:2]

    def seconds(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np  # the supervisor, which asks for nothing here, does without

        return np.interp(steps, self.steps, self.times)

    def _time_of(self, step: int) -> float:
        after = bisect_right(self.steps, step)
        if after == len(self.steps):
            return self.times[-1]
        before = max(0, after - 1)
        share = (step - self.steps[before]) / (self.steps[after] - self.steps[before]) if after else 0.0
        return self.times[before] + share * (self.times[after] - self.times[before])
