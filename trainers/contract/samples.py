"""What the telemetry samples: GPUs, the ranks' processes, the host."""

from __future__ import annotations

from trainers.contract.event import Event


class DeviceSample(Event, frozen=True, kw_only=True, tag="device-sample"):
    """One GPU at one moment; what the device does not tell is null."""

    index: int
    uuid: str
    name: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None


class RankSample(Event, frozen=True, kw_only=True, tag="rank-sample"):
    """A rank's process at one moment."""

    rank: int
    cpu_percent: float
    """100 is one core."""
    rss_bytes: int
    threads: int


class HostSample(Event, frozen=True, kw_only=True, tag="host-sample"):
    """The host at one moment."""

    cpu_percent: float
    """0 to 100 over all cores."""
    cpu_cores: int
    load_1m: float
    memory_used_bytes: int
    memory_total_bytes: int
    disk_free_bytes: int
    """Where the run directory lies."""
