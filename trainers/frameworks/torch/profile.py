"""What PyTorch's ranks measure of themselves: profiles of steps, waits for other ranks, collectives, checksums."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from tuiapp.trainers.contract.events import COMMUNICATION, COPIES, HOST, KERNELS
from tuiapp.trainers.contract.metrics import SYNC_WAIT
from tuiapp.trainers.rank.replicas import STATISTICS, Checksums
from tuiapp.trainers.rank.reporter import Reporter, Span, Traced
from tuiapp.trainers.run.stacks import Collectives

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
            seconds = end - start if of_gpu else event.self_cpu_time_total / 1e6
            rank = rank_of.get(event.device_index if of_gpu else 0, next(iter(spans)))
            spans[rank].append(Span(event.name, _kind(event.name, of_gpu=of_gpu), start, end, seconds))
        path = None
        if self._directory is not None:
            path = self._directory / f"rank-{next(iter(self._devices))}.pt.trace.json.gz"
            profile.export_chrome_trace(str(path))
            path.chmod(0o600)
        return [Traced(rank, rank_spans, peaks.get(rank)) for rank, rank_spans in spans.items()], path


def _kind(name: str, *, of_gpu: bool) -> str:
    if name.startswith(COLLECTIVE):
        return COMMUNICATION
    if name.startswith(COPYING):
        return COPIES
    # Of what runs on the host alone, operators compute; what calls them, as autograd, does not.
    return KERNELS if of_gpu or name.startswith("aten::") else HOST


FIRST, EVERY = 10, 100
"""DDP times the first ten steps, and then one of a hundred."""
EVERY_ON_CPU = 20
"""On the CPU timing is no more than reading a clock; on a GPU it waits for the step's end."""


class SyncWait:
    """Reports how long backward passes wait for the other ranks' gradients, as DDP times it."""

    def __init__(self, ddp: nn.Module, device: torch.device, report: Reporter) -> None:
        self._report, self._given, self._every = report, 0, EVERY
        self._read = getattr(ddp, "_get_ddp_logging_data", None) if dist.get_world_size() > 1 else None
        if device.type == "cpu" and (choose := getattr(ddp, "_set_ddp_runtime_logging_sample_rate", None)):
            choose(EVERY_ON_CPU)
            self._every = EVERY_ON_CPU

    def report(self, step: int) -> None:
        """Reports the step before, if DDP has timed that; called after each step."""
        timed = self._given
        self._given += 1
        if self._read is None or not timed or (timed > FIRST and timed % self._every):
            return
        timings = self._read()
        waited = timings.get("backward_comm_time", 0) - timings.get("backward_compute_comm_overlap_time", 0)
        if timings.get("iteration") == timed:
            self._report.metrics(step - 1, {SYNC_WAIT: max(0, waited) / 1e9})


DEFAULT_GROUP = "0"


def collectives() -> Collectives | None:
    """Returns the default process group's collectives; None if the recorder is off, or PyTorch has none."""
    # NCCL has a recorder of its own.
    name = "_dump_nccl_trace_json" if dist.get_backend() == "nccl" else "_dump_fr_trace_json"
    dump = getattr(torch._C._distributed_c10d, name, None)
    return read_trace(msgspec.json.decode(dump(includeCollectives=True, onlyActive=True))) if dump else None


def read_trace(trace: dict[str, Any]) -> Collectives | None:
    """Reads the recorder's output; all collectives are counted from 1, on each rank in the same order.

    What is done is read from each collective: gloo's threads note their last one in any order, so that number may stay
    behind for good.
    """
    group = trace.get("pg_status", {}).get(DEFAULT_GROUP)
    if group is None:
        return None
    # −1: none so far.
    begun = max(0, int(group["last_enqueued_collective"]))
    waiting = [entry for entry in trace.get("entries", ()) if _is_waited_for(entry)]
    if not waiting:
        return Collectives(begun, begun, "")
    first = min(waiting, key=lambda entry: int(entry["collective_seq_id"]))
    return Collectives(begun, int(first["collective_seq_id"]) - 1, describe(first))


def _is_waited_for(entry: dict[str, Any]) -> bool:
    if str(entry["pg_id"]) != DEFAULT_GROUP or entry["is_p2p"]:
        return False
    # NCCL's is completed some time before its watchdog retires it; gloo's has one state only.
    return not entry["retired"] and entry["state"] != "completed"


def describe(entry: dict[str, Any]) -> str:
    """Says what a collective does: "all_reduce of Float [225226]"."""
    name = str(entry["profiling_name"]).rpartition(":")[2]
    arrays = zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
    return f"{name} of " + ", ".join(f"{dtype} {sizes}" for dtype, sizes in arrays)


AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
"""The integer type, by bytes of a value; of larger values each four bytes are one integer."""


def replica_checksums(model: nn.Module, *, with_statistics: bool) -> tuple[Checksums, list[int]]:
    """Returns the checksums of all ranks' parameters and buffers, which they exchange: every rank calls this.

    BatchNorm's running statistics are among them only `with_statistics`, if all ranks have the same. Also returns a
    number for the model of each rank's GPU.
    """
    arrays = {
        name: array
        for name, array in (*model.named_parameters(), *model.named_buffers())
        if with_statistics or not name.endswith(STATISTICS)
    }
    sums = checksums(arrays.values())
    name = torch.cuda.get_device_name(sums.device) if sums.is_cuda else ""
    # As many bits as an int32 has above 0.
    local = torch.cat([sums, sums.new_tensor([crc32(name.encode()) >> 1])])
    gathered = local.new_empty((dist.get_world_size(), len(local)))
    dist.all_gather([*gathered], local)
    exchanged = gathered.numpy(force=True)
    return (list(arrays), exchanged[:, :-1]), exchanged[:, -1].tolist()


@torch.no_grad()
def checksums(arrays: Iterable[Tensor]) -> Tensor:
    """Returns the checksum of each array, int32 [arrays], on their device."""
    return torch.stack([_bits(array).sum(dtype=torch.int32) for array in arrays])


def _bits(array: Tensor) -> Tensor:
    dtype = AS_INTEGERS.get(array.element_size())
    return array.view(dtype) if dtype else array.reshape(-1).view(torch.int32)
