"""What devices report: of each GPU the latest sample, history, ranks, judgements in words; the history of a host."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import DeviceSample, HostSample, MigInstance
from tuiapp.trainers.state.signs import SYMBOLS, Condition
from tuiapp.trainers.state.text import plural, sanitize

HISTORY = 120  # samples per device
MOST_GPUS = 1024
MOST_PARTS = 16
MOST_PROCESSES = 256
MOST_REASONS = 8  # per sample: a journal may hold any number
GAP_S = 5.0  # longer intervals between samples leave a gap in the history


History: TypeAlias = deque[float | None]
"""The last samples of a figure; None where one lacks it, and once for each gap."""


def new_history() -> History:
    """Returns an empty history of at most `HISTORY` samples."""
    return deque(maxlen=HISTORY)


@dataclass(slots=True)
class GpuState:
    """One GPU of the host; figures that it does not report are None, never zero."""

    sample: DeviceSample
    name: str = ""  # kept while the GPU is lost
    utilization: History = field(default_factory=new_history)  # in percent
    memory: History = field(default_factory=new_history)  # used share, in percent
    power: History = field(default_factory=new_history)  # in watts
    temperature: History = field(default_factory=new_history)  # in °C
    ecc_at_first: int | None = None  # uncorrected errors before the run

    def add(self, sample: DeviceSample) -> None:
        if sample.time - self.sample.time > GAP_S:
            for history in (self.utilization, self.memory, self.power, self.temperature):
                history.append(None)
        self.sample = _bounded(sample)
        self.name = sample.name or self.name
        self.utilization.append(sample.utilization_percent)
        self.memory.append(memory_percent(sample))
        self.power.append(sample.power_w)
        self.temperature.append(sample.temperature_c)
        if self.ecc_at_first is None:
            self.ecc_at_first = sample.ecc_uncorrected

    @property
    def new_uncorrected_errors(self) -> int:
        if self.ecc_at_first is None or self.sample.ecc_uncorrected is None:
            return 0
        return max(0, self.sample.ecc_uncorrected - self.ecc_at_first)

    @property
    def foreign_processes(self) -> list[GpuProcess]:
        return [process for process in self.processes or () if process.rank is None and process.pid is not None]

    @property
    def has_unknown(self) -> bool:
        """Whether some processes on it cannot be identified, as in a container; they may be the run's."""
        return any(process.rank is None and process.pid is None for process in self.processes or ())

    @property
    def processes(self) -> list[GpuProcess] | None:
        lists = [self.sample.processes, *(part.processes for part in self.sample.mig or ())]
        reported = [processes for processes in lists if processes is not None]
        return [process for processes in reported for process in processes] if reported else None

    def part(self, uuid: str) -> MigInstance | None:
        return next((part for part in self.sample.mig or () if plain_uuid(part.uuid) == plain_uuid(uuid)), None)

    @property
    def uuids(self) -> set[str]:
        """Returns the UUIDs of the GPU and its parts, as `plain_uuid` has them."""
        return {plain_uuid(self.sample.uuid), *(plain_uuid(part.uuid) for part in self.sample.mig or ())}


def _bounded(sample: DeviceSample) -> DeviceSample:
    limits = {"processes": MOST_PROCESSES, "mig": MOST_PARTS, "throttle_reasons": MOST_REASONS}
    lists = {name: getattr(sample, name) for name in limits}
    long = {name: items[: limits[name]] for name, items in lists.items() if items and len(items) > limits[name]}
    return msgspec.structs.replace(sample, **long) if long else sample


def memory_percent(sample: DeviceSample | MigInstance) -> float | None:
    """Returns the used share of its memory; None where not available."""
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    return 100 * used / total if used is not None and total else None


def plain_uuid(uuid: str) -> str:
    """Returns a UUID as all libraries name it alike: PyTorch and JAX omit NVML's "GPU-"."""
    return uuid.lower().removeprefix("gpu-")


HOT_C = 85.0  # for a GPU without a slowdown temperature of its own
FULL_PERCENT = 95.0
IDLE_PERCENT = 10.0
IDLE_SAMPLES = 5  # consecutive samples below the limit after which a GPU is idle
HARMLESS_REASONS = ("power limit", "application clocks", "display clocks", "sync boost")
"""Why clocks are held down at full load on a healthy GPU: worth a word, not a warning."""


def gpu_condition(gpu: GpuState, *, training: bool, ours: bool = True, others_work: bool = False) -> Condition | None:
    """Returns the most severe condition of a GPU; None when all is well.

    `ours`: it is one of the run's; `training`: it is, and the run is in training; `others_work`: some of
    the run's other GPUs are busy.
    """
    sample = gpu.sample
    if sample.problem:
        return Condition(sanitize(sample.problem, 60), "error", word="lost")
    if errors := gpu.new_uncorrected_errors:
        return Condition(plural(errors, "ECC error"), "error", word="ECC")
    reasons = [sanitize(reason, 40) for reason in sample.throttle_reasons or ()]
    if bad := [reason for reason in reasons if reason not in HARMLESS_REASONS]:
        return Condition(f"slowed: {', '.join(bad)}", "warning", word="slowed")
    if is_hot(gpu):
        return Condition("hot", "warning", word="hot")
    if (memory_percent(sample) or 0.0) >= FULL_PERCENT:
        return Condition("memory full", "warning", word="full")
    if training and is_idle(gpu):
        if others_work:
            return Condition("idle, others work", "warning", SYMBOLS["info"], "idle")
        return Condition("idle", "info", word="idle")
    if ours and (users := {sanitize(process.user, 20) or "another process" for process in gpu.foreign_processes}):
        return Condition(f"shared with {', '.join(sorted(users))}", "warning", "!", "shared")
    if reasons:
        return Condition(f"limited: {', '.join(reasons)}", "info", "▾", "limited")
    return None


def is_hot(gpu: GpuState) -> bool:
    """Whether it is close to its slowdown temperature."""
    temperature, limit = gpu.sample.temperature_c, gpu.sample.temperature_limit_c
    return temperature is not None and temperature >= (limit if limit is not None else HOT_C)


def is_idle(gpu: GpuState) -> bool:
    """Whether it was almost unused in its last samples; False where utilization is not available."""
    recent = [value for value in list(gpu.utilization)[-IDLE_SAMPLES:] if value is not None]
    return len(recent) == IDLE_SAMPLES and max(recent) < IDLE_PERCENT


@dataclass(slots=True)
class HostHistory:
    cpu: History = field(default_factory=new_history)  # in percent of all cores
    memory: History = field(default_factory=new_history)  # used share, in percent
    received: History = field(default_factory=new_history)  # from the network, in bytes/s
    sent: History = field(default_factory=new_history)
    last_time: float | None = None  # of the last sample, in seconds since the epoch

    def add(self, sample: HostSample) -> None:
        if self.last_time is not None and sample.time - self.last_time > GAP_S:
            for history in (self.cpu, self.memory, self.received, self.sent):
                history.append(None)
        self.last_time = sample.time
        total = sample.memory_total_bytes
        self.cpu.append(sample.cpu_percent)
        self.memory.append(100 * sample.memory_used_bytes / total if total else None)
        self.received.append(sample.network_rx_bytes_per_s)
        self.sent.append(sample.network_tx_bytes_per_s)
