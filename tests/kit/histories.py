"""Event histories of runs, as their journals would hold them; all times, pids and values fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import (
    AnyEvent,
    Checkpoint,
    DeviceSample,
    FrameworkMemory,
    HostSample,
    LogLine,
    Media,
    Metrics,
    Operation,
    Phase,
    Predictions,
    Profile,
    RankSample,
    RankStarted,
    RunEnded,
    RunStarted,
    Shard,
    Sharding,
    Status,
    StepMemory,
    Summary,
    WorstExample,
)
from tuiapp.trainers.contract.media import MediaFolder, encode_png, to_pixels
from tuiapp.trainers.contract.metrics import TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.contract.rundir import RunDir

RUN_ID = "20261120T101500-torch-ddp-net-3fa1"

START = 1_795_169_700.0
"""20 November 2026, 10:15:00 UTC."""

MIB, GIB = 2**20, 2**30


def at(seconds: float) -> dict[str, Any]:
    """The time stamps of an event so many seconds after the start."""
    return {"time": START + seconds, "mono": 1000.0 + seconds}


def loss_at(step: int, rank: int) -> float:
    """A loss curve that falls, with a different noise for each rank."""
    return 0.08 + 2.2 * math.exp(-step / 60) + 0.12 * math.sin(step * (1.7 + rank)) * math.exp(-step / 200)


def started(
    world_size: int = 2,
    *,
    gpus: bool = False,
    attempt: int = 1,
    resumed_from: int | None = 0,
    seconds: float = 0,
) -> RunStarted:
    config = RunConfig(platform="cuda" if gpus else "cpu", devices=world_size)
    return RunStarted(
        run_id=RUN_ID,
        attempt=attempt,
        resumed_from=resumed_from,
        host="gpubox",
        pid=4100,
        config=to_toml_values(config),
        world_size=world_size,
        steps_per_epoch=29,
        total_steps=290,
        flops_per_example=15_396_864.0,
        **at(seconds),
    )


def rank_started(rank: int, *, gpus: bool = False, seconds: float = 1.0) -> RankStarted:
    return RankStarted(
        rank=rank,
        pid=4121 + rank,
        device=f"cuda:{rank}" if gpus else "cpu",
        device_name="NVIDIA H200" if gpus else "",
        uuid=f"GPU-{rank:04}" if gpus else "",
        **at(seconds + rank / 100),
    )


def steps(
    rank: int,
    first: int,
    last: int,
    seconds: float,
    *,
    losses: Sequence[float | None] | None = None,
    pace: float = 0.05,
) -> Metrics:
    if losses is None:
        losses = [loss_at(step, rank) for step in range(first, last + 1)]
    return step_event(rank, first, losses, seconds=pace, **at(seconds))


def shardings(world_size: int, *, gpus: bool = False) -> list[AnyEvent]:
    """What DDP ranks report: the batch and labels split, the parameters replicated."""
    device = [f"cuda:{rank}" if gpus else "cpu" for rank in range(world_size)]
    arrays: list[tuple[str, list[int], str, bool]] = [
        ("batch", [48, 28, 28, 1], "float32", True),
        ("labels", [48], "int64", True),
        ("parameter conv1.weight", [32, 1, 3, 3], "float32", False),
        ("parameter fc1.weight", [128, 1600], "float32", False),
        ("optimizer fc1.weight exp_avg", [128, 1600], "float32", False),
    ]
    events: list[AnyEvent] = []
    for rank in range(world_size):
        for array, shape, dtype, split in arrays:
            rows = shape[0] // world_size
            first = (rank * rows, (rank + 1) * rows) if split else (0, shape[0])
            size = (8 if dtype == "int64" else 4) * math.prod(shape) // (world_size if split else 1)
            shard = Shard(rank=rank, device=device[rank], index=[first, *((0, d) for d in shape[1:])], bytes=size)
            spec: list[str | None] = ["data" if split else None, *(None for _ in shape[1:])]
            mesh = {"data": world_size}
            events.append(
                Sharding(array=array, shape=shape, dtype=dtype, mesh=mesh, spec=spec, shards=[shard], **at(2.0))
            )
    return events


def host_sample(seconds: float) -> HostSample:
    return HostSample(
        cpu_percent=47.0 + 5 * math.sin(seconds),
        cpu_percent_per_core=[47.0 + (9 - 6 * core) + 5 * math.sin(seconds) for core in range(4)],
        cpu_cores=4,
        load_1m=1.93,
        load_5m=1.71,
        load_15m=1.02,
        memory_used_bytes=int(3.1 * GIB),
        memory_total_bytes=int(15.6 * GIB),
        swap_used_bytes=0,
        swap_total_bytes=2 * GIB,
        shm_used_bytes=64 * MIB,
        shm_total_bytes=8 * GIB,
        disk_free_bytes=37 * GIB,
        disk_total_bytes=250 * GIB,
        network_rx_bytes_per_s=18_400.0,
        network_tx_bytes_per_s=2_750.0,
        **at(seconds),
    )


def device_sample(rank: int, seconds: float) -> DeviceSample:
    """Of a GPU that rank alone works on; the fourth is too hot."""
    return DeviceSample(
        index=rank,
        uuid=f"GPU-{rank:04}",
        name="NVIDIA H200",
        utilization_percent=97.0 - rank - 4 * math.sin(seconds),
        memory_utilization_percent=38.0,
        memory_used_bytes=int(31.2 * GIB),
        memory_total_bytes=139 * GIB,
        processes=[GpuProcess(pid=4121 + rank, rank=rank, user="ada", name="python", memory_bytes=int(30.6 * GIB))],
        power_w=612.0,
        power_limit_w=700.0,
        energy_j=612.0 * seconds,
        temperature_c=64.0 + (24 if rank == 3 else 0),
        temperature_limit_c=87.0,
        sm_clock_mhz=1980.0,
        sm_clock_limit_mhz=1980.0,
        memory_clock_mhz=3201.0,
        throttle_reasons=["hot"] if rank == 3 else [],
        pcie_rx_bytes_per_s=1.31e9,
        pcie_tx_bytes_per_s=0.42e9,
        nvlink_rx_bytes_per_s=42.0e9,
        nvlink_tx_bytes_per_s=41.6e9,
        ecc_corrected=0,
        ecc_uncorrected=0,
        performance_state=0,
        **at(seconds),
    )


def samples(world_size: int, seconds: float, *, gpus: bool = False) -> list[AnyEvent]:
    """One moment of telemetry."""
    events: list[AnyEvent] = [host_sample(seconds)]
    for rank in range(world_size):
        events.append(
            RankSample(
                rank=rank,
                cpu_percent=98.0 - 3 * rank,
                rss_bytes=(412 + rank) * MIB,
                shared_bytes=138 * MIB,
                threads=8,
                read_bytes_per_s=0.0,
                write_bytes_per_s=4096.0,
                **at(seconds),
            )
        )
        if gpus:
            events.append(device_sample(rank, seconds))
            memory = {"used_bytes": 21 * GIB, "peak_bytes": 27 * GIB, "reserved_bytes": 30 * GIB}
            events.append(FrameworkMemory(rank=rank, **memory, **at(seconds)))
    return events


def evaluation(epoch: int, seconds: float, *, steps_per_epoch: int = 29) -> Metrics:
    step = epoch * steps_per_epoch
    return evaluation_event(step, loss_at(step, 0) + 0.05, 1 - 0.9 * math.exp(-epoch / 1.5), **at(seconds))


def predictions(step: int, seconds: float) -> Predictions:
    """Of three classes, the second without a name that a screen can show as it is."""
    worst = [WorstExample(7, 2, 0, 4.5), WorstExample(3, 1, 1, 0.75)]
    counts = [[28, 0, 2], [0, 30, 0], [1, 0, 29]]
    return Predictions(step=step, counts=counts, names=["cat", "d\x1b[31mog", "horse"], worst=worst, **at(seconds))


def media(run: RunDir) -> list[Media]:
    """Two pictures, and a text later; their files are in the run's directory."""
    run.path.mkdir(parents=True, exist_ok=True)
    folder, events = MediaFolder(run), list[Media]()
    ramp = np.linspace(0, 1, 32)
    colours = np.stack([ramp[:, None] * ramp, ramp[:, None] * ramp[::-1], np.tile(ramp[::-1, None], 32)], 2)
    for step in (60, 90, 120):
        disc = np.hypot(*np.ogrid[-1:1:24j, -1:1:28j]) < step / 130
        for name, picture, caption in (("mask", disc, ""), ("val/sample", colours, f"a caption of step {step}")):
            events += folder.write(name, step, [("image", encode_png(to_pixels(picture)), caption)])
    text = b"Now is the winter of our discontent\nMade glorious summer"
    return [*events, *folder.write("reply", 120, [("text", text, "")], left_out=3)]


def beginning(world_size: int = 2, *, gpus: bool = False) -> list[AnyEvent]:
    """Up to the first step."""
    events: list[AnyEvent] = [started(world_size, gpus=gpus)]
    for rank in range(world_size):
        events += [
            Phase(rank=rank, phase="preparing", **at(0.5)),
            rank_started(rank, gpus=gpus),
            LogLine(rank=rank, stream="stderr", text=f"rank {rank} ready", **at(1.5)),
        ]
    events += shardings(world_size, gpus=gpus)
    events += [Phase(rank=rank, phase="training", **at(2.0)) for rank in range(world_size)]
    return events


def training(world_size: int = 2, *, last_step: int = 130, gpus: bool = False) -> list[AnyEvent]:
    """Batches of 20 steps a second, evaluations after each epoch of 29 steps."""
    events: list[AnyEvent] = []
    for first in range(1, last_step + 1, 20):
        last = min(last_step, first + 19)
        seconds = 2.0 + last / 20
        events += [steps(rank, first, last, seconds) for rank in range(world_size)]
        events += samples(world_size, seconds, gpus=gpus)
        events += [evaluation(e, seconds) for e in range(1, 100) if first <= e * 29 <= last]
    return events


def running(world_size: int = 2, *, last_step: int = 130, gpus: bool = False) -> list[AnyEvent]:
    """A run in its middle."""
    return beginning(world_size, gpus=gpus) + training(world_size, last_step=last_step, gpus=gpus)


def summary(step: int, seconds: float, *, world_size: int = 2) -> Summary:
    """What the curves come to at a step: the ranks' mean loss, the last evaluation."""
    evaluations = [evaluation(epoch, seconds) for epoch in range(1, step // 29 + 1)]
    last = evaluations[-1] if evaluations else None
    return Summary(
        steps=step,
        epochs=step / 29,
        examples_per_second=24 * world_size / 0.05,
        loss=sum(loss_at(step, rank) for rank in range(world_size)) / world_size,
        test_loss=last.values[TEST_LOSS][0] if last else None,
        test_accuracy=last.values[TEST_ACCURACY][0] if last else None,
        best_loss=min((one.values[TEST_LOSS][0] or 0.0 for one in evaluations), default=None),
        best_accuracy=max((one.values[TEST_ACCURACY][0] or 0.0 for one in evaluations), default=None),
        seconds=seconds,
    )


def ended(
    status: Status, seconds: float, *, reason: str = "", rank: int | None = None, step: int = 290, world_size: int = 2
) -> RunEnded:
    came_to = summary(step, seconds, world_size=world_size)
    return RunEnded(status=status, reason=reason, summary=came_to, failed_rank=rank, **at(seconds))


def completed(world_size: int = 2, *, gpus: bool = False) -> list[AnyEvent]:
    """A run from start to end."""
    done: list[AnyEvent] = [Phase(rank=rank, phase="done", **at(17)) for rank in range(world_size)]
    return [*running(world_size, last_step=290, gpus=gpus), *done, ended("completed", 17.5, world_size=world_size)]


def profiles(world_size: int = 2, step: int = 120, seconds: float = 8.4, *, memory: bool = False) -> list[AnyEvent]:
    """Ten steps profiled, of which later ranks wait longer for the others; with the `memory` of a compiled one."""
    largest = [Operation("aten::convolution_backward", 0.31, 30), Operation("aten::mkldnn_convolution", 0.12, 30)]
    return [
        Profile(
            rank=rank,
            step=step,
            steps=10,
            seconds=1.0,
            spent={"kernels": 0.6 - 0.1 * rank, "communication": 0.15 + 0.1 * rank, "copies": 0.05, "host": 0.2},
            largest=largest,
            peak_bytes=3 << 30,
            process_peak_bytes=(11 + rank) << 30 if memory else None,
            step_memory=StepMemory(3 << 30, 2 << 30, 2 << 30, 5 << 30) if memory else None,
            trace=f"profiles/step-{step}/rank-{rank}.pt.trace.json.gz",
            **at(seconds),
        )
        for rank in range(world_size)
    ]


def checkpoint(step: int, seconds: float, *, best: bool = False) -> Checkpoint:
    described: dict[str, Any] = {"epoch": step / 29, "name": f"step-{step:08}", "bytes": 2_833_952, "seconds": 0.031}
    return Checkpoint(step=step, best=best, **described, **at(seconds))
