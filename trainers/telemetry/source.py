"""The interface to the makers' libraries: each is a source of GPUs, each GPU can be sampled, its energy counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tuiapp.trainers.config import machine
from tuiapp.trainers.contract.events import Alert, DeviceSample

ABSENT_S = 60.0
"""How long an unsupported value is not asked for again."""


class SourceError(Exception):
    """A library, or one of its GPUs, no longer answers; the message says why."""


class Gpu(Protocol):
    index: int
    uuid: str
    name: str

    def sample(self, now: float) -> DeviceSample:
        """Samples at this time on the monotonic clock; raises SourceError if the GPU no longer answers."""

    def alerts(self, now: float) -> list[Alert]:
        """Returns what the driver has reported of it since the last call, also while it does not answer."""


class Source(Protocol):
    name: str
    no_gpus: str
    """Message if it finds none to sample."""

    def open(self) -> Sequence[Gpu]:
        """Loads and starts the library; callable again after a failure. Raises SourceError if it cannot be used."""


class DeadGpu:
    name = ""

    def __init__(self, index: int, uuid: str, problem: str) -> None:
        self.index, self.uuid, self._problem = index, uuid, problem

    def describe(self, now: float) -> list[machine.Gpu]:
        raise SourceError(self._problem)

    def sample(self, now: float) -> DeviceSample:
        raise SourceError(self._problem)

    def alerts(self, now: float) -> list[Alert]:
        return []


GAP_S = 10.0
"""Longest time for which power is assumed constant."""


class EnergyCount:
    """Counts joules per GPU from those that an earlier sampler has counted."""

    def __init__(self, joules: Mapping[str, float]) -> None:
        self._joules = dict(joules)
        self._last: dict[str, tuple[float, int | None]] = {}
        """GPU → when it was last asked, and the driver's count then."""

    def count(self, uuid: str, counter_mj: int | None, power_w: float | None, now: float) -> float | None:
        """Returns the joules until now; None if the GPU reports neither energy nor power.

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
