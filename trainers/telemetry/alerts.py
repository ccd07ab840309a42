"""Alerts on a run's devices and host: each is raised once after a condition has lasted a while, and ended once.

Conditions come and go within seconds, so each alert has two thresholds, an upper one to raise and a lower one to end
it, and a time that must pass at either. Between the thresholds nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tuiapp.trainers.contract.events import Alert, DeviceSample, HostSample

GIB = 2**30

MEMORY_FULL, MEMORY_FREE_AGAIN = 0.95, 0.90
SHM_FULL, SHM_FREE_AGAIN = 0.90, 0.80
DISK_FULL, DISK_FREE_AGAIN = 0.95, 0.93
DISK_ENOUGH_BYTES = 20 * GIB
"""A disk with this much room is not nearly full, however large it is."""
DISK_LEAST_BYTES = GIB
IDLE_PERCENT, BUSY_PERCENT = 5.0, 30.0
STEP_S = 10.0
"""A longer gap between samples counts as this long."""


@dataclass(frozen=True, slots=True)
class Watch:
    """How long a condition must last until it is reported, and be over until that is."""

    kind: str
    severity: Literal["info", "warning", "error"]
    raise_s: float
    end_s: float
    over: str
    """The words of the alert's end; of a GPU those after its name."""


THERMAL = Watch("thermal", "warning", raise_s=3, end_s=15, over="is no longer too hot")
BRAKE = Watch("hardware-slowdown", "warning", raise_s=1, end_s=15, over="is no longer slowed down by its hardware")
# A GPU under load is at its power limit: worth knowing, no reason to worry.
POWER = Watch("power", "info", raise_s=10, end_s=30, over="is below its power limit again")
MEMORY = Watch("gpu-memory", "warning", raise_s=2, end_s=5, over="has free memory again")
IDLE = Watch("gpu-idle", "warning", raise_s=20, end_s=3, over="is no longer idle")
LOST = Watch("gpu-lost", "error", raise_s=0, end_s=0, over="answers again")
ECC = Watch("ecc", "warning", raise_s=0, end_s=600, over="had no further memory error for 10 minutes")
ECC_UNCORRECTED = Watch(
    "ecc-uncorrected", "error", raise_s=0, end_s=600, over="had no further memory error for 10 minutes"
)
DISK = Watch("disk", "warning", raise_s=2, end_s=10, over="the run's disk has free space again")
SHM = Watch("shm", "warning", raise_s=2, end_s=10, over="/dev/shm has free space again")


class Alerts:
    """The alerts on a node's devices and host; `run_dir` is where its ranks write."""

    def __init__(self, run_dir: str = "") -> None:
        self._run_dir = run_dir
        self._levels: dict[tuple[str, str], _Level] = {}
        self._gpus: dict[str, DeviceSample] = {}
        self._errors: dict[str, tuple[int, int]] = {}
        """GPU → its corrected and uncorrected ECC errors, when last seen."""

    def check(self, sample: DeviceSample | HostSample) -> list[Alert]:
        if isinstance(sample, HostSample):
            return self._host(sample)
        self._gpus[sample.uuid] = sample
        name = f"GPU {sample.index}"
        lost = self._move(LOST, sample, bool(sample.problem), f"{name} does not answer: {sample.problem}")
        if sample.problem:
            return [*lost, *self._end_all(sample)]
        reasons = sample.throttle_reasons
        hot = {"hot", "too hot"}
        braked = {"hardware slowdown", "power brake"}
        slow = f"{name} is slowed down by its hardware ({', '.join(reasons or [])})"
        heat = "" if sample.temperature_c is None else f" at {sample.temperature_c:.0f} °C"
        watts = "" if sample.power_limit_w is None else f" of {sample.power_limit_w:.0f} W"
        return [
            *lost,
            *self._move(THERMAL, sample, _any(reasons, hot), f"{name} is too hot{heat}: its clocks are reduced"),
            *self._move(BRAKE, sample, _any(reasons, braked), slow),
            *self._move(POWER, sample, _any(reasons, {"power limit"}), f"{name} is at its power limit{watts}"),
            *self._memory(sample, name),
            *self._idle(sample, name),
            *self._ecc(sample, name),
        ]

    def _memory(self, sample: DeviceSample, name: str) -> list[Alert]:
        used, total = sample.memory_used_bytes, sample.memory_total_bytes
        if used is None or not total:
            return []
        share = used / total
        holds = _between(share, MEMORY_FREE_AGAIN, MEMORY_FULL)
        whose = f"{name}'s memory, which is the system's," if sample.has_system_memory else f"{name}'s memory"
        return self._move(MEMORY, sample, holds, f"{whose} is {share:.0%} full")

    def _idle(self, sample: DeviceSample, name: str) -> list[Alert]:
        """Checks whether a GPU waits while others work: it may wait forever."""
        busy = sample.utilization_percent
        other_loads = [
            gpu.utilization_percent
            for gpu in self._gpus.values()
            if gpu.uuid != sample.uuid and gpu.utilization_percent is not None and sample.mono - gpu.mono < STEP_S
        ]
        if busy is None or not other_loads:
            return []
        holds = busy < IDLE_PERCENT and max(other_loads) >= BUSY_PERCENT
        text = f"{name} has been idle for {IDLE.raise_s:.0f} s while others work: a rank may hang"
        return self._move(IDLE, sample, holds, text)

    def _ecc(self, sample: DeviceSample, name: str) -> list[Alert]:
        now = sample.ecc_corrected, sample.ecc_uncorrected
        if now[0] is None and now[1] is None:
            return []
        counts = now[0] or 0, now[1] or 0
        before, self._errors[sample.uuid] = self._errors.get(sample.uuid, counts), counts
        alerts = []
        for watch, count, old, what in zip(
            (ECC, ECC_UNCORRECTED), counts, before, ("was corrected", "was not corrected"), strict=True
        ):
            text = f"{name}: a memory error {what} (ECC), {count:,} since the driver was loaded"
            alerts += self._move(watch, sample, count > old, text)
        return alerts

    def _host(self, sample: HostSample) -> list[Alert]:
        alerts: list[Alert] = []
        free, total = sample.disk_free_bytes, sample.disk_total_bytes
        if total:
            share = 1 - free / total
            little = free < DISK_LEAST_BYTES
            holds = True if little else _between(share, DISK_FREE_AGAIN, DISK_FULL)
            if not little and free > DISK_ENOUGH_BYTES:
                holds = False
            text = f"the run's disk is nearly full: {free / GIB:.1f} GiB are free in {self._run_dir}"
            alerts += self._move(DISK, sample, holds, text)
        if sample.shm_total_bytes and sample.shm_used_bytes is not None:
            share = sample.shm_used_bytes / sample.shm_total_bytes
            text = f"/dev/shm is {share:.0%} full: processes that share arrays may fail"
            alerts += self._move(SHM, sample, _between(share, SHM_FREE_AGAIN, SHM_FULL), text)
        return alerts

    def _move(self, watch: Watch, sample: DeviceSample | HostSample, holds: bool | None, text: str) -> list[Alert]:
        uuid = sample.uuid if isinstance(sample, DeviceSample) else ""
        level = self._levels.setdefault((watch.kind, uuid), _Level())
        change = level.move(watch, holds, sample.mono)
        if change is None:
            return []
        if change:
            return [Alert(kind=watch.kind, severity=watch.severity, device=uuid, text=text)]
        name = f"GPU {sample.index} " if isinstance(sample, DeviceSample) else ""
        return [Alert(kind=watch.kind, severity="info", device=uuid, text=f"{name}{watch.over}", ended=True)]

    def _end_all(self, sample: DeviceSample) -> list[Alert]:
        alerts = []
        for (kind, uuid), level in self._levels.items():
            if uuid == sample.uuid and kind != LOST.kind:
                if level.raised:
                    text = f"GPU {sample.index} does not answer"
                    alerts.append(Alert(kind=kind, severity="info", device=uuid, text=text, ended=True))
                level.raised, level.seconds = False, 0.0
        return alerts


@dataclass(slots=True)
class _Level:
    seconds: float = 0.0
    mono: float | None = None
    raised: bool = False

    def move(self, watch: Watch, holds: bool | None, mono: float) -> bool | None:
        """Counts a sample; returns True to raise the alert, False to end it, None for no change."""
        passed = min(STEP_S, max(0.0, mono - self.mono)) if self.mono is not None else 0.0
        self.mono = mono
        if holds is None:
            return None
        if self.raised:
            self.seconds = 0.0 if holds else self.seconds + passed
            if not holds and self.seconds >= watch.end_s:
                self.raised, self.seconds = False, 0.0
                return False
            return None
        # A condition in two samples of three gets there, if slowly.
        self.seconds = self.seconds + passed if holds else max(0.0, self.seconds - passed)
        if holds and self.seconds >= watch.raise_s:
            self.raised, self.seconds = True, 0.0
            return True
        return None


def _any(reasons: list[str] | None, which: set[str]) -> bool | None:
    return None if reasons is None else bool(which.intersection(reasons))


def _between(value: float, low: float, high: float) -> bool | None:
    return True if value >= high else False if value < low else None
