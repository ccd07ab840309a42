"""What a run's training took: examples, time, waiting, energy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tuiapp.trainers.contract.events import DeviceSample, Event, Metrics, RunStarted
from tuiapp.trainers.contract.metrics import DATA_WAIT, EXAMPLES, STEP_TIME, total

GAP_S = 10.0
"""Samples further apart do not count for the time between them."""


class StepTotals(NamedTuple):
    seconds: float
    examples: float
    waited: float
    """Part of `seconds` in which the rank waited for data."""
    reported_seconds: float
    """`seconds` if the event reports its waiting, else 0."""


def totals_of(event: Metrics) -> StepTotals:
    """What the steps of one event took; the event has `step_time`."""
    values, counts = event.values, event.counts
    seconds, examples = total(values[STEP_TIME], counts), total(values.get(EXAMPLES, ()))
    if DATA_WAIT not in values:
        return StepTotals(seconds, examples, 0.0, 0.0)
    return StepTotals(seconds, examples, total(values[DATA_WAIT], counts), seconds)


class Totals(msgspec.Struct):
    examples: float = 0.0
    rank_seconds: float = 0.0
    waited_seconds: float = 0.0
    reported_seconds: float = 0.0
    """Training seconds of the events that report waiting for data."""
    energy_j: float = 0.0
    energy_gpu_seconds: float = 0.0
    busy_gpu_seconds: float = 0.0
    sampled_gpu_seconds: float = 0.0

    def since(self, earlier: Totals) -> Totals:
        return Totals(*(getattr(self, name) - getattr(earlier, name) for name in self.__struct_fields__))


@dataclass(slots=True)
class TotalsMeter:
    totals: Totals = field(default_factory=Totals)
    _sampled: dict[str, float] = field(default_factory=dict)
    _energy: dict[str, tuple[float, float]] = field(default_factory=dict)
    """GPU → time and value of its last energy figure."""

    @property
    def gpus(self) -> int:
        return len(self._energy)

    def add(self, event: Event) -> None:
        if isinstance(event, DeviceSample):
            self._sample(event)
        elif isinstance(event, RunStarted):
            self._sampled.clear()
            self._energy.clear()

    def add_steps(self, batch: StepTotals) -> None:
        totals = self.totals
        totals.examples += batch.examples
        totals.rank_seconds += batch.seconds
        totals.waited_seconds += batch.waited
        totals.reported_seconds += batch.reported_seconds

    def _sample(self, sample: DeviceSample) -> None:
        totals = self.totals
        last = self._sampled.get(sample.uuid)
        self._sampled[sample.uuid] = sample.mono
        passed = sample.mono - last if last is not None else 0.0
        if sample.utilization_percent is not None and 0 < passed <= GAP_S:
            totals.busy_gpu_seconds += passed * sample.utilization_percent / 100
            totals.sampled_gpu_seconds += passed
        if sample.energy_j is not None:
            mono, energy = self._energy.get(sample.uuid, (sample.mono, sample.energy_j))
            gained, passed = max(0.0, sample.energy_j - energy), max(0.0, sample.mono - mono)
            # Its figure continues over a gap, and so does the total, unless it was a sampler that was missing.
            if gained or passed <= GAP_S:
                totals.energy_j += gained
                totals.energy_gpu_seconds += passed
            self._energy[sample.uuid] = sample.mono, sample.energy_j
