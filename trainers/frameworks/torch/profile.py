"""torch.profiler for the steps that somebody asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from tuiapp.trainers.contract.events import COMMUNICATION, COPIES, HOST, KERNELS
from tuiapp.trainers.rank.reporter import Span, Traced

COLLECTIVE = ("nccl", "c10d::", "gloo:", "_c10d_functional::")
COPYING = ("Memcpy", "Memset", "aten::copy_", "aten::to", "aten::_to_copy", "aten::contiguous", "aten::clone")


class TorchProfiler:
    """`devices` are this process's, by rank."""

    def __init__(self, devices: Mapping[int, torch.device]) -> None:
        self._devices = devices
        self._on_gpu = any(device.type == "cuda" for device in devices.values())
        self._directory: Path | None = None
        self._profile: torch.profiler.profile | None = None
        # The library behind it prints a line at each start and stop.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")

    def start(self, directory: Path | None) -> None:
        self._directory = directory
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self._on_gpu
        self._profile = torch.profiler.profile(activities=activities)
        self._profile.start()
        for device in self._devices.values():
            if device.type == "cuda":
                torch.cuda.synchronize(device)
                torch.cuda.reset_peak_memory_stats(device)

    def stop(self) -> tuple[list[Traced], Path | None]:
        assert self._profile is not None
        profile, self._profile = self._profile, None
        peaks: dict[int, int] = {}
        for rank, device in self._devices.items():
            if device.type == "cuda":
                torch.cuda.synchronize(device)
                peaks[rank] = torch.cuda.max_memory_allocated(device)
        profile.stop()
        spans: dict[int, list[Span]] = {rank: [] for rank in self._devices}
        rank_of = {device.index or 0: rank for rank, device in self._devices.items()}
        for event in profile.events() or ():
            of_gpu = event.device_type == DeviceType.CUDA
            # On a GPU what the host does is its calls; those that a user has named enclose what counts.
            if of_gpu != self._on_gpu or (event.is_user_annotation and not event.name.startswith("gloo:")):
                continue
            start, end = event.time_range.start / 1e6, event.time_range.end / 1e6
            own = end - start if of_gpu else event.self_cpu_time_total / 1e6
            rank = rank_of.get(event.device_index if of_gpu else 0, next(iter(spans)))
            spans[rank].append(Span(event.name, _kind(event.name, of_gpu=of_gpu), start, end, own))
        path = None
        if self._directory is not None:
            path = self._directory / f"rank-{next(iter(self._devices))}.pt.trace.json.gz"
            profile.export_chrome_trace(str(path))
            path.chmod(0o600)
        return [Traced(rank, found, peaks.get(rank)) for rank, found in spans.items()], path


def _kind(name: str, *, of_gpu: bool) -> str:
    if name.startswith(COLLECTIVE):
        return COMMUNICATION
    if name.startswith(COPYING):
        return COPIES
    # Of what runs on the host alone, operators compute; what calls them, as autograd, does not.
    return KERNELS if of_gpu or name.startswith("aten::") else HOST
