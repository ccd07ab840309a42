"""The energy that a GPU has used since the run's start."""

from __future__ import annotations

from trainers.telemetry.handover import Energy, Handover

GAP_S = 10.0
"""Longest time for which power is assumed constant."""


class EnergyCount:
    """Counts joules per GPU; continues the count of an earlier sampler, kept in `handover`."""

    def __init__(self, handover: Handover) -> None:
        self._handover = handover
        self._counts: dict[str, Energy] = {}

    def count(self, uuid: str, counter_mj: int | None, power_w: float | None, now: float) -> float | None:
        """Joules until now; None if the GPU reports neither energy nor power.

        `counter_mj` is the driver's count in millijoules since it was loaded; without it `power_w` is integrated.
        """
        before = self._counts.get(uuid) or self._handover.energy(uuid)
        if counter_mj is None and power_w is None:
            return before.joules if before else None
        joules = before.joules if before else 0.0
        if before is not None:
            if counter_mj is not None and before.counter_mj:
                # A counter that fell belongs to a reloaded driver.
                joules += max(0, counter_mj - before.counter_mj) / 1000
            elif power_w is not None and now - before.mono <= GAP_S:
                joules += power_w * (now - before.mono)
        self._counts[uuid] = energy = Energy(joules, counter_mj or 0, now)
        self._handover.keep(uuid, energy)
        return joules
