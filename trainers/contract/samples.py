"""What the telemetry samples: GPUs, the ranks' processes, the host; and the memory of the ranks' frameworks.

Null means not available, never zero: a device that does not report its fan's speed may have none. Rates (`…_per_s`) are
null in the first sample, because a rate takes two.
"""

from __future__ import annotations

import msgspec

from trainers.config.machine import GpuProcess
from trainers.contract.event import Event

PLACE = "at place "
"""With its index, the UUID of a GPU that could not report one so far."""


class MigInstance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a GPU that acts as a device (MIG); it has no utilization, clocks or power of its own."""

    uuid: str
    name: str = ""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    processes: list[GpuProcess] | None = None


class DeviceSample(Event, frozen=True, kw_only=True, tag="device-sample"):
    """One GPU at one moment; null for what the device does not report."""

    index: int
    """The driver's, in PCI bus order."""
    uuid: str
    """Matches a rank: equal to its `RankStarted.uuid`, or to that of one of `mig`."""
    name: str
    problem: str = ""
    """Why it no longer answers, as "GPU is lost"; "" while it answers."""
    utilization_percent: float | None = None
    """Share of the time in which a kernel ran. Null under MIG."""
    memory_utilization_percent: float | None = None
    """Share of the time in which its memory was read or written."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    processes: list[GpuProcess] | None = None
    """Those that hold its memory, except those in `mig`; null if the driver does not report them."""
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    """Since this attempt's first sample; continues when the sampler restarts, and begins at 0 in an attempt."""
    temperature_c: float | None = None
    temperature_limit_c: float | None = None
    """Where throttling begins."""
    sm_clock_mhz: float | None = None
    sm_clock_limit_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: list[str] | None = None
    """Why its clocks are reduced, as "power limit"; an idle GPU's low clocks are no throttling."""
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    """Over all its links."""
    nvlink_tx_bytes_per_s: float | None = None
    fan_percent: float | None = None
    ecc_corrected: int | None = None
    """Corrected memory errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    performance_state: int | None = None
    """0 (P0, fastest) to 15."""
    mig: list[MigInstance] | None = None
    """Its parts; null while MIG is off."""


class RankSample(Event, frozen=True, kw_only=True, tag="rank-sample"):
    rank: int
    cpu_percent: float | None = None
    """100 is one core; null in its first sample."""
    rss_bytes: int
    shared_bytes: int | None = None
    """Part of `rss_bytes` that other processes may share."""
    threads: int
    read_bytes_per_s: float | None = None
    """From storage, not from the page cache."""
    write_bytes_per_s: float | None = None


class FrameworkMemory(Event, frozen=True, kw_only=True, tag="framework-memory"):
    """What a framework holds of a rank's device, by torch.cuda.memory_stats or jax's Device.memory_stats.

    NVML's figure counts what is merely reserved. Not sent on CPU devices, which have no such figures.
    """

    rank: int
    used_bytes: int | None = None
    """In live arrays."""
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    """Taken from the driver, used or not."""
    limit_bytes: int | None = None
    """The most that the framework may take."""


class HostSample(Event, frozen=True, kw_only=True, tag="host-sample"):
    cpu_percent: float
    """0 to 100 over all cores."""
    cpu_percent_per_core: list[float] | None = None
    """0 to 100 each, for every core of the host."""
    cpu_cores: int
    """Cores that the run may use."""
    load_1m: float
    load_5m: float | None = None
    load_15m: float | None = None
    memory_used_bytes: int
    memory_total_bytes: int
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    """0 is a host without swap."""
    shm_used_bytes: int | None = None
    """/dev/shm, through which processes share arrays."""
    shm_total_bytes: int | None = None
    disk_free_bytes: int
    """In the run directory's file system, free to its user."""
    disk_total_bytes: int | None = None
    network_rx_bytes_per_s: float | None = None
    """Over all interfaces but loopback."""
    network_tx_bytes_per_s: float | None = None


class TelemetrySource(Event, frozen=True, kw_only=True, tag="telemetry-source"):
    """A source of samples has failed, or works again: sent on each change."""

    source: str
    """"NVML", "AMD SMI", or "sampler", the process that queries them all."""
    problem: str = ""
    """Why it fails, in words; "": it works."""
