"""Stands in for AMD's module of this name: three GPUs, of which one tells little and one nothing."""

from __future__ import annotations

import os
import signal
from enum import Enum
from typing import Any


class AmdSmiException(Exception):
    """As AMD's module raises."""


class AmdSmiClkType(Enum):
    GFX, MEM = 0, 1


class AmdSmiTemperatureType(Enum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(Enum):
    CURRENT = 0


def amdsmi_init() -> None:
    """Fails as it is told."""
    if fault := os.environ.get("FAKE_AMDSMI"):
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        raise AmdSmiException(fault)


def amdsmi_get_processor_handles() -> list[int]:
    return [0, 1, 2]


def amdsmi_get_gpu_device_uuid(handle: int) -> str:
    return f"amd-{handle}"


def amdsmi_get_gpu_asic_info(handle: int) -> dict[str, Any]:
    return {"market_name": "AMD Instinct MI300X"}


def amdsmi_get_gpu_activity(handle: int) -> dict[str, Any]:
    _needs(handle, 1)
    return {"gfx_activity": 91, "umc_activity": "N/A", "mm_activity": 0}


def amdsmi_get_gpu_vram_usage(handle: int) -> dict[str, Any]:
    _needs(handle, 0)
    return {"vram_total": 196_608, "vram_used": 1024}


def amdsmi_get_power_info(handle: int) -> dict[str, Any]:
    _needs(handle, 0)
    return {"socket_power": "N/A", "current_socket_power": 512, "power_limit": "N/A"}


def amdsmi_get_power_cap_info(handle: int) -> dict[str, Any]:
    _needs(handle, 0)
    return {"power_cap": 750_000_000}


def amdsmi_get_clock_info(handle: int, kind: AmdSmiClkType) -> dict[str, Any]:
    _needs(handle, 0)
    return {"clk": 2100 if kind is AmdSmiClkType.GFX else 1300, "max_clk": 2101}


def amdsmi_get_gpu_total_ecc_count(handle: int) -> dict[str, Any]:
    _needs(handle, 0)
    return {"correctable_count": 3, "uncorrectable_count": 0}


def amdsmi_get_temp_metric(handle: int, sensor: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric) -> int:
    _needs(handle, 0)
    return 68


def amdsmi_get_energy_count(handle: int) -> dict[str, Any]:
    _needs(handle, 0)
    return {"energy_accumulator": 1_000_000, "counter_resolution": 15.3, "timestamp": 0}


def amdsmi_get_gpu_process_list(handle: int) -> list[dict[str, Any]]:
    _needs(handle, 0)
    return [{"pid": os.getppid(), "name": "python", "mem": 0, "memory_usage": {"vram_mem": 4096}}]


def _needs(handle: int, most: int) -> None:
    if handle > most:
        raise AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")
