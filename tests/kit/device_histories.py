"""Histories of devices: what many GPUs, MIG, heat, throttling, idleness, loss and strangers look like in a journal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.kit import histories as h
from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import AnyEvent, DeviceSample, FrameworkMemory, MigInstance, RankStarted

SECONDS = 40
"""Samples, one a second, after the run's first two."""


def framework(rank: int, seconds: float) -> FrameworkMemory:
    return FrameworkMemory(
        rank=rank,
        used_bytes=int(22.4 * h.GIB),
        peak_bytes=int(26.1 * h.GIB),
        reserved_bytes=int(28.0 * h.GIB),
        **h.at(seconds),
    )


def on_gpus(count: int, **changes: dict[int, dict[str, Any]]) -> list[AnyEvent]:
    """A run on so many GPUs that goes well.

    Args:
        count: GPUs, each with a rank.
        changes: `last={GPU: fields}` changes the last ten samples of a GPU; `always={GPU: fields}` all of them.
    """
    always, last = changes.get("always", {}), changes.get("last", {})
    events = h.beginning(count, gpus=True)
    for second in range(SECONDS):
        seconds = 3.0 + second
        first = second * 20 + 1
        events += [h.steps(rank, first, first + 19, seconds) for rank in range(count)]
        events.append(h.host_sample(seconds))
        for gpu in range(count):
            sample = h.device_sample(gpu, seconds)
            wave = 90 + 9 * math.sin(second / 3 + gpu)
            fields: dict[str, Any] = {
                "utilization_percent": round(wave),
                "temperature_c": 64.0 + gpu % 8,
                "throttle_reasons": [],
                "power_w": 590.0 + round(wave),
            }
            fields |= always.get(gpu, {}) | (last.get(gpu, {}) if second >= SECONDS - 10 else {})
            events.append(msgspec.structs.replace(sample, **fields))
        events += [framework(rank, seconds) for rank in range(count)]
    return events


def sampled_last(changes: dict[str, Any], *, before: Sequence[AnyEvent] = ()) -> list[AnyEvent]:
    """A run on two GPUs, the second of which was sampled like that at last.

    Args:
        changes: Of that sample's fields.
        before: What comes before it.
    """
    last = msgspec.structs.replace(h.device_sample(1, 44.0), **changes)
    return [*on_gpus(2), *before, last]


def in_trouble(count: int = 8) -> list[AnyEvent]:
    """One GPU is hot, one slowed down, one idle, one full, one lost, one at its power limit, one used by another."""
    stranger = GpuProcess(pid=771, user="grace", name="python3", memory_bytes=int(9.5 * h.GIB))
    ours = GpuProcess(pid=4127, rank=6, user="ada", name="python", memory_bytes=int(30.6 * h.GIB))
    silent: dict[str, Any] = dict.fromkeys(
        name for name in DeviceSample.__struct_fields__ if name.endswith(("_percent", "_w", "_c", "_mhz", "_per_s"))
    )
    last: dict[int, dict[str, Any]] = {
        0: {"throttle_reasons": ["power limit"], "power_w": 699.0},
        1: {"temperature_c": 88.0},
        2: {"temperature_c": 91.0, "throttle_reasons": ["hot", "hardware slowdown"], "sm_clock_mhz": 810.0},
        3: {"utilization_percent": 0.0, "power_w": 118.0, "temperature_c": 41.0},
        4: {"memory_used_bytes": int(137.5 * h.GIB)},
        5: {**silent, "problem": "GPU is lost", "memory_used_bytes": None, "processes": None},
        6: {"processes": [ours, stranger]},
        7: {"ecc_uncorrected": 2},
    }
    return on_gpus(count, last={gpu: fields for gpu, fields in last.items() if gpu < count})


def telling_little() -> list[AnyEvent]:
    """Two GPUs of a desktop: no links, no ECC, no limits; they have fans."""
    absent = dict.fromkeys(
        [
            "memory_utilization_percent", "power_limit_w", "energy_j", "temperature_limit_c", "memory_clock_mhz",
            "throttle_reasons", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s",
            "nvlink_tx_bytes_per_s", "ecc_corrected", "ecc_uncorrected", "processes",
        ]
    )  # fmt: skip
    fields = {**absent, "fan_percent": 41.0, "name": "NVIDIA GeForce RTX 4090"}
    return [event for event in on_gpus(2, always={0: fields, 1: fields}) if not isinstance(event, FrameworkMemory)]


def on_mig() -> list[AnyEvent]:
    """Two ranks on two instances of one GPU, beside a third instance that is free."""
    parts = [
        MigInstance(
            uuid=f"MIG-{number:04}",
            name="MIG 2g.35gb",
            memory_used_bytes=int((12.3 if number < 2 else 0.02) * h.GIB),
            memory_total_bytes=int(32.6 * h.GIB),
            processes=[GpuProcess(pid=4121 + number, rank=number, memory_bytes=12 * h.GIB)] if number < 2 else [],
        )
        for number in range(3)
    ]
    fields = {"mig": parts, "utilization_percent": None, "memory_utilization_percent": None, "processes": None}
    events: list[AnyEvent] = []
    for event in on_gpus(2, always={0: fields}):
        if isinstance(event, RankStarted):
            event = msgspec.structs.replace(event, uuid=f"MIG-{event.rank:04}")
        if not (isinstance(event, DeviceSample) and event.index):
            events.append(event)
    return events
