"""AMD's GPUs through the amdsmi module that comes with ROCm, if installed.

Runs are not placed on them: they are sampled if all GPUs are requested. Units are those of amdsmi 7.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import Alert, DeviceSample
from tuiapp.trainers.contract.metrics import is_number
from tuiapp.trainers.telemetry.host import Owners
from tuiapp.trainers.telemetry.source import ABSENT_S, DeadGpu, EnergyCount, Gpu, SourceError

MIB = 2**20


class AmdSource:
    name = "AMD SMI"
    no_gpus = "it finds no GPU"

    def __init__(self, owners: Owners, energy: EnergyCount) -> None:
        self._owners, self._energy = owners, energy

    @staticmethod
    def installed() -> bool:
        """Whether the module is installed."""
        return importlib.util.find_spec("amdsmi") is not None

    def open(self) -> Sequence[Gpu]:
        smi = importlib.import_module("amdsmi")
        try:
            smi.amdsmi_init()
            handles = smi.amdsmi_get_processor_handles()
        except smi.AmdSmiException as error:
            raise SourceError(str(error)) from error
        return [self._look_at(smi, handle, index) for index, handle in enumerate(handles)]

    def _look_at(self, smi: Any, handle: Any, index: int) -> Gpu:
        try:
            return AmdGpu(smi, handle, index, self._owners, self._energy)
        except smi.AmdSmiException as error:
            return DeadGpu(index, f"AMD GPU {index}", str(error))


class AmdGpu:
    def __init__(self, smi: Any, handle: Any, index: int, owners: Owners, energy: EnergyCount) -> None:
        self._smi, self._handle, self._owners, self._energy = smi, handle, owners, energy
        self.index, self.uuid = index, smi.amdsmi_get_gpu_device_uuid(handle)
        self.name = str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"])
        self._again: dict[str, float] = {}

    def sample(self, now: float) -> DeviceSample:
        smi = self._smi
        activity = self._query("amdsmi_get_gpu_activity", now)
        memory = self._query("amdsmi_get_gpu_vram_usage", now)
        power, cap = self._query("amdsmi_get_power_info", now), self._query("amdsmi_get_power_cap_info", now)
        clock = self._query("amdsmi_get_clock_info", now, smi.AmdSmiClkType.GFX)
        memory_clock = self._query("amdsmi_get_clock_info", now, smi.AmdSmiClkType.MEM)
        ecc = self._query("amdsmi_get_gpu_total_ecc_count", now)
        hottest, current = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        watts = _number(power, "socket_power")
        if watts is None:
            watts = _number(power, "current_socket_power")
        if all(answer is None for answer in (activity, memory, power, clock)):
            raise SourceError("it does not answer")
        return DeviceSample(
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            utilization_percent=_number(activity, "gfx_activity"),
            memory_utilization_percent=_number(activity, "umc_activity"),
            memory_used_bytes=_whole(_number(memory, "vram_used"), MIB),
            memory_total_bytes=_whole(_number(memory, "vram_total"), MIB),
            processes=self._processes(now),
            power_w=watts,
            # In microwatts.
            power_limit_w=_scaled(_number(cap, "power_cap"), 1e-6),
            energy_j=self._energy.count(self.uuid, self._millijoules(now), watts, now),
            temperature_c=_finite(self._query("amdsmi_get_temp_metric", now, hottest, current)),
            sm_clock_mhz=_number(clock, "clk"),
            sm_clock_limit_mhz=_number(clock, "max_clk"),
            memory_clock_mhz=_number(memory_clock, "clk"),
            ecc_corrected=_whole(_number(ecc, "correctable_count")),
            ecc_uncorrected=_whole(_number(ecc, "uncorrectable_count")),
        )

    def alerts(self, now: float) -> list[Alert]:
        return []

    def _millijoules(self, now: float) -> int | None:
        count = self._query("amdsmi_get_energy_count", now)
        ticks, microjoules = _number(count, "energy_accumulator"), _number(count, "counter_resolution")
        return None if ticks is None or microjoules is None else int(ticks * microjoules / 1000)

    def _processes(self, now: float) -> list[GpuProcess] | None:
        processes = self._query("amdsmi_get_gpu_process_list", now)
        if processes is None:
            return None
        return [
            self._owners.describe(process["pid"], _whole(_number(process["memory_usage"], "vram_mem")))
            for process in processes
        ]

    def _query(self, name: str, now: float, *arguments: Any) -> Any:
        key = name + repr(arguments)
        if now < self._again.get(key, 0.0):
            return None
        call: Callable[..., Any] | None = getattr(self._smi, name, None)
        try:
            return call(self._handle, *arguments) if call else None
        except self._smi.AmdSmiException:
            self._again[key] = now + ABSENT_S
            return None


def _number(answer: Mapping[str, Any] | None, key: str) -> float | None:
    return None if answer is None else _finite(answer.get(key))


def _finite(value: Any) -> float | None:
    """Returns a number; None for any other value: unavailable ones are "N/A"."""
    return value if is_number(value) else None


def _whole(value: float | None, unit: int = 1) -> int | None:
    return None if value is None else int(value * unit)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
