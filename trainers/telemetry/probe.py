"""`python -m trainers.telemetry.probe`: this machine's GPUs as JSON, once, for a launch."""

from __future__ import annotations

import contextlib
import sys
import time

import msgspec
import pynvml

from trainers.config.machine import GpuReport
from trainers.telemetry.energy import EnergyCount
from trainers.telemetry.nvidia import NvmlSource
from trainers.telemetry.owners import Owners
from trainers.telemetry.source import SourceError


def read_gpus() -> GpuReport:
    """Queries NVML for the GPUs, in this process."""
    source = NvmlSource("all", Owners({}), EnergyCount({}))
    gpus, problem, driver = [], f"NVML: {source.no_gpus}", None
    try:
        for gpu in source.open():
            try:
                gpus.append(gpu.describe(time.monotonic()))
            except SourceError as error:
                # A lost GPU does not keep runs from the others.
                problem = f"NVML: {error}"
    except SourceError as error:
        problem = f"NVML: {error}"
    with contextlib.suppress(pynvml.NVMLError):
        driver = pynvml.nvmlSystemGetDriverVersion()
    return GpuReport(gpus=tuple(gpus), driver=driver, problem="" if gpus else problem)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read_gpus()))
