"""The energy that a GPU has used since the run's start."""

from __future__ import annotations

from collections.abc import Mapping

GAP_S = 10.0
"""Longest time for which power is assumed constant."""


class EnergyCount:
    """Counts joules per GPU from those that an earlier sampler has counted."""

    def __init__(self, joules: Mapping[str, float]) -> None:
        self._joules = dict(joules)
        self._last: dict[str, tuple[float, int | None]] = {}
        """GPU → when it was last asked, and the driver's count then."""

    def count(self, uuid: str, counter_mj: int | None, power_w: float | None, now: float) -> float | None:
        """Joules until now; None if the GPU reports neither energy nor power.

        `counter_mj` is the driver's count in millijoules since it was loaded; without it `power_w` is integrated.
        """
        if counter_mj is None and power_w is None:
            return self._joules.get(uuid)
        joules = self._joules.get(uuid, 0.0)
        mono, counter = self._last.get(uuid, (now, counter_mj))
        if counter_mj is not None and counter is not None:
            # A counter that fell belongs to a reloaded driver.
            joules += max(0, counter_mj - counter) / 1000
        elif power_w is not None and now - mono <= GAP_S:
            joules += power_w * (now - mono)
        self._joules[uuid], self._last[uuid] = joules, (now, counter_mj)
        return joules
