"""Judgements about a GPU, in words."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from tuiapp.state.devices.gpu import GpuState, memory_percent
from tuiapp.state.text import plural, sanitize

HOT_C = 85.0  # for a GPU without a slowdown temperature of its own
FULL_PERCENT = 95.0
IDLE_PERCENT = 10.0
IDLE_SAMPLES = 5  # consecutive samples below the limit after which a GPU is idle
HARMLESS_REASONS = ("power limit", "application clocks", "display clocks", "sync boost")
"""Why clocks are held down at full load on a healthy GPU: worth a word, not a warning."""

Weight: TypeAlias = Literal["info", "warning", "error"]


class GpuCondition(NamedTuple):
    symbol: str
    word: str  # in at most nine cells
    text: str
    weight: Weight

    def within(self, room: int) -> str:
        return f"{self.symbol} {self.text if len(self.text) + 2 <= room else self.word}"


def gpu_condition(
    gpu: GpuState, *, training: bool, ours: bool = True, others_work: bool = False
) -> GpuCondition | None:
    """Returns the most severe condition of a GPU; None when all is well.

    `ours`: it is one of the run's; `training`: it is, and the run is in training; `others_work`: some of
    the run's other GPUs are busy.
    """
    sample = gpu.sample
    if gpu.is_lost:
        return GpuCondition("✖", "lost", sanitize(sample.problem, 60), "error")
    if errors := gpu.new_uncorrected_errors:
        return GpuCondition("✖", "ECC", plural(errors, "ECC error"), "error")
    reasons = [sanitize(reason, 40) for reason in sample.throttle_reasons or ()]
    if bad := [reason for reason in reasons if reason not in HARMLESS_REASONS]:
        return GpuCondition("▲", "slowed", f"slowed: {', '.join(bad)}", "warning")
    if is_hot(gpu):
        return GpuCondition("▲", "hot", "hot", "warning")
    if (memory_percent(sample) or 0.0) >= FULL_PERCENT:
        return GpuCondition("▲", "full", "memory full", "warning")
    if training and is_idle(gpu):
        if others_work:
            return GpuCondition("◌", "idle", "idle, others work", "warning")
        return GpuCondition("◌", "idle", "idle", "info")
    if ours and (others_names := _foreign_users(gpu)):
        return GpuCondition("!", "shared", f"shared with {others_names}", "warning")
    if reasons:
        return GpuCondition("▾", "limited", f"limited: {', '.join(reasons)}", "info")
    return None


def _foreign_users(gpu: GpuState) -> str:
    users = {sanitize(one.user, 20) or "another process" for one in gpu.foreign_processes}
    return ", ".join(sorted(users))


def is_hot(gpu: GpuState) -> bool:
    """Whether it is close to its slowdown temperature."""
    temperature, limit = gpu.sample.temperature_c, gpu.sample.temperature_limit_c
    return temperature is not None and temperature >= (limit if limit is not None else HOT_C)


def is_idle(gpu: GpuState) -> bool:
    """Whether it was almost unused in its last samples; False where utilization is not available."""
    recent = [value for value in list(gpu.utilization)[-IDLE_SAMPLES:] if value is not None]
    return len(recent) == IDLE_SAMPLES and max(recent) < IDLE_PERCENT
