"""Samples GPUs, rank processes and the host once a second, in a process of its own.

`python -m trainers.runtime.telemetry RUN_DIR RANK:PID…`; events go to stdout as JSON lines. A driver call that hangs
or crashes takes only this process with it: training and the journal go on. Ends when its parent closes the pipe.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil

from trainers.contract.events import DeviceSample, Event, HostSample, LogLine, RankSample, encode

INTERVAL_S = 1.0


def main() -> None:
    """Sample until the parent is gone."""
    run_dir = sys.argv[1]
    ranks = dict[int, psutil.Process]()
    for argument in sys.argv[2:]:
        rank, pid = argument.split(":")
        with contextlib.suppress(psutil.NoSuchProcess):
            ranks[int(rank)] = psutil.Process(int(pid))
    uuids = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    gpus, problem = _open_gpus(uuids.split(",")) if uuids else ([], "")
    if problem:
        _send([LogLine(rank=None, stream="run", text=f"no GPU telemetry: {problem}")])
    psutil.cpu_percent()
    for process in ranks.values():
        with contextlib.suppress(psutil.Error):
            process.cpu_percent()
    due = time.monotonic()
    while True:
        due += INTERVAL_S
        time.sleep(max(0.0, due - time.monotonic()))
        events: list[Event] = [_sample_host(run_dir)]
        events += [sample for rank, process in ranks.items() if (sample := _sample_rank(rank, process))]
        events += [read() for read in gpus]
        _send(events)


def _send(events: list[Event]) -> None:
    try:
        sys.stdout.buffer.write(b"".join(encode(event) for event in events))
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)


def _sample_host(run_dir: str) -> HostSample:
    memory = psutil.virtual_memory()
    return HostSample(
        cpu_percent=psutil.cpu_percent(),
        cpu_cores=len(os.sched_getaffinity(0)),
        load_1m=os.getloadavg()[0],
        memory_used_bytes=memory.total - memory.available,
        memory_total_bytes=memory.total,
        disk_free_bytes=shutil.disk_usage(run_dir).free,
    )


def _sample_rank(rank: int, process: psutil.Process) -> RankSample | None:
    try:
        with process.oneshot():
            return RankSample(
                rank=rank,
                cpu_percent=process.cpu_percent(),
                rss_bytes=process.memory_info().rss,
                threads=process.num_threads(),
            )
    except psutil.Error:
        return None


def _open_gpus(uuids: list[str]) -> tuple[list[Callable[[], DeviceSample]], str]:
    """One sampling function per GPU, or why there are none."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        return [_gpu_sampler(pynvml, handle, uuid) for handle, uuid in zip(handles, uuids, strict=True)], ""
    except pynvml.NVMLError as error:
        return [], f"NVML: {error}"


def _gpu_sampler(nvml: Any, handle: Any, uuid: str) -> Callable[[], DeviceSample]:
    index, name = nvml.nvmlDeviceGetIndex(handle), nvml.nvmlDeviceGetName(handle)

    def ask(call: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None where this device has none."""
        try:
            return call(handle, *arguments)
        except nvml.NVMLError:
            return None

    def scaled(value: int | None, factor: float) -> float | None:
        return None if value is None else value * factor

    def sample() -> DeviceSample:
        utilization, memory = ask(nvml.nvmlDeviceGetUtilizationRates), ask(nvml.nvmlDeviceGetMemoryInfo)
        return DeviceSample(
            index=index,
            uuid=uuid,
            name=name,
            utilization_percent=utilization.gpu if utilization else None,
            memory_used_bytes=memory.used if memory else None,
            memory_total_bytes=memory.total if memory else None,
            power_w=scaled(ask(nvml.nvmlDeviceGetPowerUsage), 1e-3),
            power_limit_w=scaled(ask(nvml.nvmlDeviceGetEnforcedPowerLimit), 1e-3),
            temperature_c=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            sm_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        )

    return sample


if __name__ == "__main__":
    main()
