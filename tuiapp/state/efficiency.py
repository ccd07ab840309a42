"""What a run makes of its devices, derived from its events: the same figures in every view.

- **Examples per joule**: examples trained on, over the energy of the run's GPUs in the same time.
- **GPU idle share**: 1 less the mean share of the time in which a kernel ran.
- **Data-wait share**: the time that ranks waited for their next batches, over that of their steps.
- **Model FLOP/s**: FLOPs of the model's forward and backward pass per example (`RunStarted.flops_per_example`: matrix
  products and convolutions alone, nothing recomputed counted twice) times examples per second of training,
  evaluation and checkpoints excluded.
- **MFU**, model FLOP/s utilization: that over what the run's GPUs can compute at most in its precision
  (`tuiapp.state.peaks`). Source: Chowdhery et al., PaLM, appendix B, https://arxiv.org/abs/2204.02311

What cannot be known is None.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import NamedTuple

from trainers.contract.events import DeviceSample, Event, Metrics, RankStarted, RunStarted
from trainers.contract.metrics import DATA_WAIT, EXAMPLES, STEP_TIME, sound_entries, total
from tuiapp.state.peaks import find_peak

GAP_S = 10.0
"""Samples further apart tell nothing of the time between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The figures, each None where it is not known."""

    examples_per_joule: float | None = None
    gpu_idle_share: float | None = None
    """0 to 1."""
    data_wait_share: float | None = None
    """0 to 1."""
    flops_per_second: float | None = None
    """Over all devices."""
    mfu: float | None = None
    """0 to 1."""
    power_w: float | None = None
    """Mean, over all the run's GPUs."""


class Training(NamedTuple):
    """What steps came to."""

    mono: float
    """Of their last event."""
    examples: float
    rank_seconds: float
    """Training seconds, added up over the ranks."""
    waited_seconds: float
    """Of these, those in which ranks waited for data."""
    telling_seconds: float
    """The training seconds of the events that tell it."""


def training_of(event: Metrics) -> Training:
    """What the steps of one event came to: nothing where it does not report their time."""
    values, counts = event.values, event.counts
    if STEP_TIME not in values or not sound_entries(event):
        return Training(event.mono, 0.0, 0.0, 0.0, 0.0)
    seconds, examples = total(values[STEP_TIME], counts), total(values.get(EXAMPLES, ()))
    if DATA_WAIT not in values:
        return Training(event.mono, examples, seconds, 0.0, 0.0)
    return Training(event.mono, examples, seconds, total(values[DATA_WAIT], counts), seconds)


@dataclass(slots=True)
class _Totals:
    """What has come together; the figures are made of differences of two."""

    examples: float = 0.0
    rank_seconds: float = 0.0
    """Training seconds, added up over the ranks."""
    waited_seconds: float = 0.0
    telling_seconds: float = 0.0
    """Those in which ranks waited for data, and the training seconds of the events that tell it."""
    energy_j: float = 0.0
    energy_gpu_seconds: float = 0.0
    busy_gpu_seconds: float = 0.0
    sampled_gpu_seconds: float = 0.0

    def since(self, earlier: _Totals) -> _Totals:
        """What has come since another moment."""
        return _Totals(*(getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self)))


@dataclass(slots=True)
class EfficiencyMeter:
    """Folds a run's events, in order, into its efficiency.

    Attributes:
        window_s: How far back it looks; None: over the whole run, all attempts together.
    """

    window_s: float | None = None
    _totals: _Totals = field(default_factory=_Totals)
    _marks: deque[tuple[float, _Totals]] = field(default_factory=deque)
    """When, and the totals then: at most one a second, the oldest just outside of the window."""
    _last: dict[str, DeviceSample] = field(default_factory=dict)
    _energy: dict[str, tuple[float, float]] = field(default_factory=dict)
    """GPU → the last moment and figure of its energy."""
    _names: dict[int, str] = field(default_factory=dict)
    _flops_per_example: float | None = None
    _precision: str = ""
    _world_size: int = 0

    def add(self, event: Event) -> None:
        """Take one event."""
        match event:
            # First, because it is most of a journal.
            case Metrics():
                self.add_training(training_of(event))
            case RunStarted():
                self._flops_per_example, self._world_size = event.flops_per_example, event.world_size
                self._precision = str(event.config.get("precision", "float32"))
                for kept in (self._last, self._energy, self._names, self._marks):
                    kept.clear()
            case RankStarted():
                self._names[event.rank] = event.device_name
            case DeviceSample():
                self._sample(event)
                self._mark(event.mono)

    def add_training(self, training: Training) -> None:
        """Take what steps came to, in the place of their events."""
        totals = self._totals
        totals.examples += training.examples
        totals.rank_seconds += training.rank_seconds
        totals.waited_seconds += training.waited_seconds
        totals.telling_seconds += training.telling_seconds
        self._mark(training.mono)

    def _sample(self, sample: DeviceSample) -> None:
        last, self._last[sample.uuid] = self._last.get(sample.uuid), sample
        passed = sample.mono - last.mono if last is not None else 0.0
        if sample.utilization_percent is not None and 0 < passed <= GAP_S:
            self._totals.busy_gpu_seconds += passed * sample.utilization_percent / 100
            self._totals.sampled_gpu_seconds += passed
        if sample.energy_j is not None:
            # Its figure goes on over a gap, and so does what is made of it.
            mono, energy = self._energy.get(sample.uuid, (sample.mono, sample.energy_j))
            self._totals.energy_j += max(0.0, sample.energy_j - energy)
            self._totals.energy_gpu_seconds += max(0.0, sample.mono - mono)
            self._energy[sample.uuid] = sample.mono, sample.energy_j

    def _mark(self, mono: float) -> None:
        if self.window_s is None:
            return
        if not self._marks or mono - self._marks[-1][0] >= 1:
            self._marks.append((mono, replace(self._totals)))
        while len(self._marks) > 1 and self._marks[1][0] <= mono - self.window_s:
            self._marks.popleft()

    def efficiency(self) -> Efficiency:
        """The figures, as of the last event."""
        totals = self._totals.since(self._marks[0][1]) if self._marks else self._totals
        flops = self._flops(totals)
        peak = self._peak()
        sampled, measured = totals.sampled_gpu_seconds, totals.energy_gpu_seconds
        figures = {
            "examples_per_joule": totals.examples / totals.energy_j if totals.energy_j and totals.examples else None,
            "gpu_idle_share": 1 - totals.busy_gpu_seconds / sampled if sampled else None,
            "data_wait_share": totals.waited_seconds / totals.telling_seconds if totals.telling_seconds else None,
            "flops_per_second": flops,
            "mfu": flops / peak if flops is not None and peak else None,
            "power_w": totals.energy_j / measured * len(self._energy) if measured else None,
        }
        # A damaged journal may hold figures that no device has.
        return Efficiency(**{name: one for name, one in figures.items() if one is not None and isfinite(one)})

    def _flops(self, totals: _Totals) -> float | None:
        if self._flops_per_example is None or not totals.rank_seconds:
            return None
        return self._flops_per_example * totals.examples / totals.rank_seconds * self._world_size

    def _peak(self) -> float | None:
        """Of all the run's GPUs together; None unless it is known of each."""
        if not self._world_size or len(self._names) != self._world_size:
            return None
        found = [find_peak(name) for name in self._names.values()]
        peaks = [peak.at(self._precision) if peak else None for peak in found]
        return None if None in peaks else sum(peak for peak in peaks if peak is not None)
