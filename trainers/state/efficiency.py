"""How well a run uses its devices, derived from its events: the same figures in every view.

- **Examples per joule**: examples trained on, over the energy of the run's GPUs in the same time.
- **GPU idle share**: 1 less the mean share of the time in which a kernel ran.
- **Data-wait share**: the time that ranks waited for their next batches, over that of their steps.
- **Model FLOP/s**: FLOPs of the model's forward and backward pass per example (`RunStarted.flops_per_example`: matrix
  products and convolutions alone, nothing recomputed counted twice) times examples per second of training,
  evaluation and checkpoints excluded.
- **MFU**, model FLOP/s utilization: that over the peak of the run's GPUs in its precision (`trainers.state.peaks`).
  Source: Chowdhery et al., PaLM, appendix B, https://arxiv.org/abs/2204.02311
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass, field
from math import isfinite

from trainers.contract.events import DeviceSample, Event, Metrics, RankStarted, RunStarted
from trainers.state.digest import Digest
from trainers.state.peaks import find_peak
from trainers.state.totals import Totals, TotalsMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    examples_per_joule: float | None = None
    gpu_idle_share: float | None = None  # 0 to 1
    data_wait_share: float | None = None  # 0 to 1
    flops_per_second: float | None = None  # over all devices
    mfu: float | None = None  # 0 to 1
    power_w: float | None = None  # mean, over all the run's GPUs


@dataclass(slots=True)
class EfficiencyMeter:
    """Folds a run's events, in order, into its efficiency over the last `window_s`; None: over all attempts."""

    window_s: float | None = None
    _meter: TotalsMeter = field(default_factory=TotalsMeter)
    _marks: deque[tuple[float, Totals]] = field(default_factory=deque)
    """Time and totals: at most one a second, the oldest just outside the window."""
    _names: dict[int, str] = field(default_factory=dict)
    _flops_per_example: float | None = None
    _precision: str = ""
    _world_size: int = 0

    def add(self, event: Event | Digest) -> None:
        """Adds an event, or first the digest of many."""
        if isinstance(event, Digest):
            for kept in event.events:
                self.add(kept)
            self._meter.effort = copy(event.effort)
            return
        self._meter.add(event)
        match event:
            # First, because most events are of this kind.
            case Metrics() | DeviceSample():
                self._mark(event.mono)
            case RunStarted():
                self._flops_per_example, self._world_size = event.flops_per_example, event.world_size
                self._precision = str(event.config.get("precision", "float32"))
                self._names.clear()
                self._marks.clear()
            case RankStarted():
                self._names[event.rank] = event.device_name

    def _mark(self, mono: float) -> None:
        if self.window_s is None:
            return
        if not self._marks or mono - self._marks[-1][0] >= 1:
            self._marks.append((mono, copy(self._meter.effort)))
        while len(self._marks) > 1 and self._marks[1][0] <= mono - self.window_s:
            self._marks.popleft()

    def efficiency(self) -> Efficiency:
        totals = self._meter.effort
        if self._marks:
            totals = totals.since(self._marks[0][1])
        flops = self._flops(totals)
        peak = self._peak()
        sampled, measured = totals.sampled_gpu_seconds, totals.energy_gpu_seconds
        figures = {
            "examples_per_joule": totals.examples / totals.energy_j if totals.energy_j and totals.examples else None,
            "gpu_idle_share": 1 - totals.busy_gpu_seconds / sampled if sampled else None,
            "data_wait_share": totals.waited_seconds / totals.reported_seconds if totals.reported_seconds else None,
            "flops_per_second": flops,
            "mfu": flops / peak if flops is not None and peak else None,
            "power_w": totals.energy_j / measured * self._meter.gpus if measured else None,
        }
        # A damaged journal may hold impossible figures.
        return Efficiency(**{name: one for name, one in figures.items() if one is not None and isfinite(one)})

    def _flops(self, totals: Totals) -> float | None:
        if self._flops_per_example is None or not totals.rank_seconds:
            return None
        return self._flops_per_example * totals.examples / totals.rank_seconds * self._world_size

    def _peak(self) -> float | None:
        if not self._world_size or len(self._names) != self._world_size:
            return None
        found = [find_peak(name) for name in self._names.values()]
        peaks = [peak.at(self._precision) if peak else None for peak in found]
        return None if None in peaks else sum(peak for peak in peaks if peak is not None)
