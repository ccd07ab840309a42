"""How well a run uses its devices, derived from its events: the same figures in every view.

- **Examples per joule**, of a text tokens, too: examples trained on, over the energy of the run's GPUs in the same
  time.
- **GPU idle share**: 1 less the mean share of the time in which a kernel ran.
- **Data-wait share**: the time that ranks waited for their next batches, over that of their steps.
- **Model FLOP/s**: FLOPs of the model's forward and backward pass per example (`RunStarted.flops_per_example`: matrix
  products and convolutions alone, nothing recomputed counted twice) times examples per second of training,
  evaluation and checkpoints excluded.
- **MFU**, model FLOP/s utilization: that over the peak of the run's GPUs in its precision (`Peak`).
  Source: Chowdhery et al., PaLM, appendix B, https://arxiv.org/abs/2204.02311
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tuiapp.trainers.config.datasets import labels_of
from tuiapp.trainers.contract.events import DeviceSample, Event, Metrics, Queued, RankStarted, RunStarted
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
    """Returns what the steps of one event took; the event has `step_time`."""
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


WINDOW_S = 30.0
"""Seconds over which the efficiency of late is averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    examples_per_joule: float | None = None
    tokens_per_joule: float | None = None  # of a text only, as the next
    tokens_per_second: float | None = None  # of training, over all devices
    gpu_idle_share: float | None = None  # 0 to 1
    data_wait_share: float | None = None  # 0 to 1
    flops_per_second: float | None = None  # over all devices
    mfu: float | None = None  # 0 to 1
    power_w: float | None = None  # mean, over all the run's GPUs


@dataclass(slots=True)
class EfficiencyMeter:
    """Folds a run's events, in order, into its efficiency of late and over all attempts."""

    _meter: TotalsMeter = field(default_factory=TotalsMeter)
    _marks: deque[tuple[float, Totals]] = field(default_factory=deque)
    """Time and totals: at most one a second, the oldest just outside of `WINDOW_S`."""
    _names: dict[int, str] = field(default_factory=dict)
    _flops_per_example: float | None = None
    _precision: str = ""
    _tokens: int | None = None
    """Tokens of an example."""
    _world_size: int = 0

    def add(self, event: Event) -> None:
        if isinstance(event, Metrics):
            return self.add_steps(event.mono, totals_of(event) if STEP_TIME in event.values else None)
        self._meter.add(event)
        match event:
            case DeviceSample():
                self._mark(event.mono)
            case RunStarted():
                self._flops_per_example, self._world_size = event.flops_per_example, event.world_size
                self._precision = str(event.config.get("precision", "float32"))
                tokens, called = labels_of(event.config)
                self._tokens = tokens if called else None
                self._names.clear()
                self._marks.clear()
            case Queued():
                self._marks.clear()
            case RankStarted():
                self._names[event.rank] = event.device_name

    def add_steps(self, mono: float, batch: StepTotals | None) -> None:
        """Adds what the steps of one event took; None of one that does not say it."""
        if batch is not None:
            self._meter.add_steps(batch)
        self._mark(mono)

    def _mark(self, mono: float) -> None:
        if not self._marks or mono - self._marks[-1][0] >= 1:
            self._marks.append((mono, replace(self._meter.totals)))
        while len(self._marks) > 1 and self._marks[1][0] <= mono - WINDOW_S:
            self._marks.popleft()

    def efficiency(self, *, whole: bool = False) -> Efficiency:
        """Returns the run's efficiency over the last `WINDOW_S`, or over all attempts."""
        totals = self._meter.totals
        if not whole:
            totals = totals.since(self._marks[0][1]) if self._marks else Totals()
        flops, tokens = (
            self._per_second(totals, per_example) for per_example in (self._flops_per_example, self._tokens)
        )
        peak = self._peak()
        sampled, measured = totals.sampled_gpu_seconds, totals.energy_gpu_seconds
        figures = {
            "examples_per_joule": totals.examples / totals.energy_j if totals.energy_j and totals.examples else None,
            "tokens_per_joule": self._tokens * totals.examples / totals.energy_j
            if self._tokens and totals.energy_j and totals.examples
            else None,
            "tokens_per_second": tokens,
            "gpu_idle_share": 1 - totals.busy_gpu_seconds / sampled if sampled else None,
            "data_wait_share": totals.waited_seconds / totals.reported_seconds if totals.reported_seconds else None,
            "flops_per_second": flops,
            "mfu": flops / peak if flops is not None and peak else None,
            "power_w": totals.energy_j / measured * self._meter.gpus if measured else None,
        }
        # A damaged journal may hold impossible figures.
        return Efficiency(
            **{name: figure for name, figure in figures.items() if figure is not None and isfinite(figure)}
        )

    def _per_second(self, totals: Totals, per_example: float | None) -> float | None:
        """Returns the rate, per second over all devices, of what each example has `per_example` of."""
        if per_example is None or not totals.rank_seconds:
            return None
        return per_example * totals.examples / totals.rank_seconds * self._world_size

    def _peak(self) -> float | None:
        if not self._world_size or len(self._names) != self._world_size:
            return None
        by_gpu = [find_peak(name) for name in self._names.values()]
        peaks = [peak.at(self._precision) if peak else None for peak in by_gpu]
        return None if None in peaks else sum(peak for peak in peaks if peak is not None)


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak of one GPU in FLOP/s by precision; None where it does not support it."""

    float32: float
    tf32: float | None
    bfloat16: float | None
    float16: float | None
    source: str

    def at(self, precision: str) -> float | None:
        return {
            "float32": self.float32,
            "tf32": self.tf32,
            "bfloat16": self.bfloat16,
            "float16": self.float16,
        }.get(precision)


_NVIDIA = "https://www.nvidia.com/content"
_IMAGES = "https://images.nvidia.com"
_BLACKWELL = "NVIDIA Blackwell datasheet (HGX B200, GB200 NVL72), individual GPU; sparse figures halved"
_HOPPER = "NVIDIA H100 and H200 datasheets, https://resources.nvidia.com/en-us-tensor-core; sparse figures halved"
_A100 = f"{_NVIDIA}/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_A30 = "NVIDIA A30 datasheet"
_A40 = f"{_IMAGES}/content/Solutions/data-center/a40/nvidia-a40-datasheet.pdf"
_A10 = f"{_NVIDIA}/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
_A10G = "NVIDIA A10G datasheet, as Full Stack Deep Learning's table of cloud GPUs has it: not an A10's figures"
_L40S = "NVIDIA L40S datasheet; sparse figures halved"
_ADA = f"{_IMAGES}/aem-dam/Solutions/Data-Center/l4/nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf"
_RTX_6000 = "NVIDIA RTX 6000 Ada Generation datasheet; sparse figures halved"
_GA102 = f"{_NVIDIA}/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
_GB202 = f"{_IMAGES}/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
_H20 = "NVIDIA H20 datasheet, as reported; dense figures"
_A5000 = "NVIDIA RTX A5000 datasheet; sparse figures halved"
_SMALL = "float32 of NVIDIA's specifications; tensor cores once and twice that, as in larger ones of its architecture"
_PRO = "NVIDIA RTX PRO 6000 Blackwell datasheet; sparse figures halved"
_VOLTA = f"{_IMAGES}/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
_TURING = f"{_NVIDIA}/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"

_TABLE: tuple[tuple[str, float, float | None, float | None, str], ...] = (
    # The driver's name without the maker; TFLOP/s in float32, tf32, bfloat16.
    (r"GB200( .*)?", 80, 1250, 2500, _BLACKWELL),
    (r"B[23]00( .*)?", 75, 1100, 2250, _BLACKWELL),
    (r"H[12]00 NVL( .*)?", 60, 417.5, 835.5, _HOPPER),
    (r"H100 PCIe( .*)?", 51, 378, 756, _HOPPER),
    (r"(GH200|H200|H[18]00 (SXM5 )?\d+GB HBM3|H[18]00 SXM5)( .*)?", 67, 494.5, 989.5, _HOPPER),
    (r"H20( .*)?", 44, 74, 148, _H20),
    (r"A[18]00[- ].*", 19.5, 156, 312, _A100),
    (r"A30", 10.3, 82, 165, _A30),
    (r"A40", 37.4, 74.8, 149.7, _A40),
    (r"A10", 31.2, 62.5, 125, _A10),
    (r"A10G", 35, 35, 70, _A10G),
    (r"L40S", 91.6, 183, 362, _L40S),
    (r"L40", 90.5, 90.5, 181, _ADA),
    (r"L4", 30.3, 60, 121, _ADA),
    (r"RTX A6000", 38.7, 77.4, 154.8, _GA102),
    (r"RTX A5000", 27.8, 55.6, 111.1, _A5000),
    (r"RTX 3090", 35.6, 35.6, 71, _GA102),
    (r"RTX 3080( 10GB)?", 29.8, 29.8, 59.5, _GA102),
    (r"RTX 3070", 20.3, 20.3, 40.6, _GA102),
    (r"RTX 3060", 12.7, 12.7, 25.5, _SMALL),
    (r"RTX 6000 Ada Generation", 91.1, 182.1, 364.2, _RTX_6000),
    (r"RTX 4090", 82.6, 82.6, 165.2, _ADA),
    (r"RTX 4080", 48.7, 48.7, 97.5, _ADA),
    (r"RTX 4070 Ti", 40.1, 40.1, 80.2, _ADA),
    (r"RTX 4060", 15.1, 15.1, 30.2, _SMALL),
    (r"RTX PRO 6000 Blackwell Workstation Edition", 126, 251.9, 503.8, _PRO),
    (r"RTX 5090", 104.8, 104.8, 209.5, _GB202),
    (r"RTX 5080", 56.3, 56.3, 112.6, _GB202),
    (r"RTX 5070 Ti", 43.9, 43.9, 87.9, _GB202),
    (r"V100-SXM[23]-.*", 15.7, None, None, _VOLTA),
    (r"V100-PCIE-.*", 14, None, None, _VOLTA),
    (r"V100S-PCIE-.*", 16.4, None, None, _VOLTA),
    (r"T4", 8.1, None, None, _TURING),
)


_ONLY_FLOAT16 = {r"V100-SXM[23]-.*": 125, r"V100-PCIE-.*": 112, r"V100S-PCIE-.*": 130, r"T4": 65}
"""TFLOP/s of tensor cores that do not know bfloat16; others are as fast in both types of 16 bits."""


@lru_cache(64)
def find_peak(device_name: str) -> Peak | None:
    """Returns the peak of the GPU with that driver or framework name; None where it is not known."""
    name = re.sub(r"^((NVIDIA|Tesla|GeForce) )+", "", device_name.strip())
    if "MIG" in name or "Laptop" in name:
        return None
    for pattern, float32, tf32, bfloat16, source in _TABLE:
        if re.fullmatch(pattern, name):
            return Peak(
                float32 * 1e12, _tera(tf32), _tera(bfloat16), _tera(_ONLY_FLOAT16.get(pattern, bfloat16)), source
            )
    return None


def _tera(value: float | None) -> float | None:
    return None if value is None else value * 1e12
