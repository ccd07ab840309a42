"""The time on the clock of a run's supervisor, which another machine may have: its clock and this one's may differ."""

from __future__ import annotations

from collections.abc import Callable

TOLERATED_S = 5.0
"""Events take this long to arrive: a smaller difference counts as none."""


class RunClock:
    """`clock` returns this machine's time, in seconds since the epoch.

    An event that arrives while the run is watched has just happened: its time shows what the supervisor's clock says.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._newest = 0.0
        self._watched = False
        self._ahead_s = 0.0

    def now(self) -> float:
        return self._clock() + self._ahead_s

    def hear(self, newest: float, *, more: bool) -> None:
        """Takes the time of a run's newest event; `more` if there are older ones still to be read."""
        if newest > self._newest and self._watched:
            ahead = newest - self._clock()
            self._ahead_s = ahead if abs(ahead) > TOLERATED_S else 0.0
        self._newest = newest
        self._watched |= not more
