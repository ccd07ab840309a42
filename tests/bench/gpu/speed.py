"""How fast it trains, and whether the times that are shown are true."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from tests.bench.gpu.box import Box
from tests.bench.gpu.training import quickstart_config
from tests.kit.harness import Watched, watching
from tests.kit.reported import of_steps
from tuiapp.trainers.config.files import user_cache
from tuiapp.trainers.config.machine import inspect_machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import AnyEvent, Event, Metrics, Phase, RankStarted, RunEnded, RunStarted
from tuiapp.trainers.contract.metrics import STEP_TIME, TEST_SECONDS, total
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.launch.directory import make_directory
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.launch.processes import start_supervisor
from tuiapp.trainers.state.efficiency import EfficiencyMeter, find_peak

IMAGES, BATCH = 60_000, 1_024
"""With a batch of 256 a GPU waits for launches, and is as fast in any precision."""
CPU_IMAGES, CPU_BATCH = 2_000, 256
LARGE_IMAGES, LARGE_PIXELS, LARGE_BATCH = 4_096, 224, 128
"""Small images are read row by row, which a fast GPU does not wait for."""

LEAST_OF_BARE, LEAST_ON_CPU = 0.97, 0.7
"""On a CPU that others use at the same time a ratio of two runs says less."""

LEAST_STREAMED = 0.9

EPOCHS = {"float32": 4, "tf32": 6, "bfloat16": 12, "bfloat16+compile": 12, "bfloat16+graphs": 12}
"""Label → epochs, of 58 steps."""
CLOCK_S, CLOCK_PERCENT = 0.1, 2.0
"""What may be missing of a run's time: the larger."""


def synthetic(box: Box) -> str:
    """A data set of random images, 28×28×1; made once."""
    path = box.report / "synthetic.npz"
    if not path.exists():
        dice = np.random.default_rng(0)
        count = CPU_IMAGES if box.on_cpu else IMAGES
        parts = {"train": count, "test": 1_000}
        arrays = {f"x_{name}": dice.integers(0, 256, (size, 28, 28, 1), np.uint8) for name, size in parts.items()}
        arrays |= {f"y_{name}": dice.integers(0, 10, size) for name, size in parts.items()}
        np.savez(path, **arrays)  # type: ignore[arg-type]
    return f"npz:{path}"


def config_of(box: Box, label: str) -> RunConfig:
    """ResNet-18 on the synthetic images, trained and nothing else; on the CPU a smaller model."""
    precision, _, compiled = label.partition("+")
    return box.config(
        model="net" if box.on_cpu else "resnet18",
        dataset=synthetic(box),
        global_batch_size=CPU_BATCH if box.on_cpu else BATCH,
        precision=precision,
        compile=bool(compiled),
        epochs=EPOCHS[label],
        eval_every=0,
        checkpoint_every=0,
    )


def beside_bare(box: Box) -> None:
    """In bfloat16; and as a remark the bare loop compiled with CUDA graphs."""
    labels = ["float32"] if box.on_cpu else ["bfloat16", "bfloat16+compile"]
    graphs = ["bfloat16+graphs"]
    if box.on_cpu or not (shutil.which("cc") or shutil.which("gcc")):
        labels, graphs = labels[:1], []
        box.find.note("compile skipped", "there is no C compiler (gcc)" if not box.on_cpu else "on the CPU")
    bare = compare(box, labels, graphs)
    if not box.on_cpu:
        with box.find.part("cuda_graphs"):
            beside_eager(box)
    for label in graphs:
        box.find.note(f"a bare loop with CUDA graphs: images/s {bare[label]:,.0f}")


def beside_eager(box: Box) -> None:
    """`cuda_graphs` beside the same run without: ResNet-18, and a small model that waits for launches."""
    large = config_of(box, "bfloat16")
    small = msgspec.structs.replace(large, model="net", global_batch_size=CPU_BATCH, epochs=4)
    for name, config in (("speed-bfloat16", large), ("speed-small", small)):
        eager = rate_of(box.shared(name, config))
        replayed = rate_of(box.shared(f"{name}-graphs", msgspec.structs.replace(config, cuda_graphs=True)))
        what = f"{config.model} with cuda_graphs: images/s {replayed:,.0f}, eager {eager:,.0f}, ratio"
        box.find.at_least(what, replayed / max(1.0, eager), 1.0, ".3f")


def precisions(box: Box) -> None:
    """In float32 and tf32, beside the bfloat16 of before."""
    compare(box, ["float32", "tf32"], [])
    labels = ("float32", "tf32", "bfloat16")
    ours = {label: rate_of(box.shared(f"speed-{label}", config_of(box, label))) for label in labels}
    box.find.holds("tf32 is faster than float32", ours["tf32"] > ours["float32"])
    box.find.holds("bfloat16 is faster than tf32", ours["bfloat16"] > ours["tf32"])


def compare(box: Box, labels: Sequence[str], others: Sequence[str]) -> dict[str, float]:
    """Trains with each label beside the bare loop; returns the bare rates, those of `others` included."""
    runs = {label: box.shared(f"speed-{label}", config_of(box, label)) for label in labels}
    bare = bare_rates(box, [*labels, *others])
    for label, run in runs.items():
        what = f"{label}: images/s {rate_of(run):,.0f}, bare {bare[label]:,.0f}, ratio"
        box.find.at_least(what, rate_of(run) / bare[label], LEAST_ON_CPU if box.on_cpu else LEAST_OF_BARE, ".3f")
        with box.find.part(label):
            check_mfu(box, label, run)
    return bare


def rate_of(run: Watched) -> float:
    return run.end().summary.examples_per_second or 0.0


def bare_rates(box: Box, labels: Sequence[str]) -> dict[str, float]:
    model, device = ("net", "cpu") if box.on_cpu else ("resnet18", "cuda")
    words = [synthetic(box).removeprefix("npz:"), model, str(CPU_BATCH if box.on_cpu else BATCH), device]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(box.gpus[:1])}
    # As a rank has it: all cores, and the compiler's cache.
    environment.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache() / "torch"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu.bare_loop", *words, *(f"{label}:{EPOCHS[label]}" for label in labels)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"the bare loop failed:\n{done.stderr[-3000:]}")
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


def check_mfu(box: Box, label: str, run: Watched) -> None:
    found = mfu(run.events)
    if found is None:
        box.find.note(f"{label}: MFU skipped", "the peak of this device is not known")
        return
    shown, by_the_clock = found
    off = 100 * abs(shown / by_the_clock - 1)
    box.find.at_most(f"{label}: MFU {100 * shown:.1f} %, per cent off the wall clock's", off, 3, ".2f")


def mfu(events: Sequence[AnyEvent]) -> tuple[float, float] | None:
    """MFU of the epochs after the first on one device: as views show it, and from how long these epochs took.

    The one counts the times of steps, the other knows nothing of them. None if the device's peak is not known.
    """
    started = next(event for event in events if isinstance(event, RunStarted))
    device = next(event for event in events if isinstance(event, RankStarted))
    peak = find_peak(device.device_name)
    at_peak = peak.at(str(started.config["precision"])) if peak else None
    meter = EfficiencyMeter()
    for event in (started, device, *after_first_epoch(events)):
        meter.add(event)
    shown = meter.efficiency(whole=True).mfu
    if shown is None or at_peak is None or started.flops_per_example is None:
        return None
    steps = started.total_steps - started.steps_per_epoch
    seconds = sum(epoch_seconds(events)[1:])
    images = steps * int(str(started.config["global_batch_size"])) / seconds
    return shown, images * started.flops_per_example / at_peak


def after_first_epoch(events: Sequence[AnyEvent]) -> Iterator[Metrics]:
    """The batches of steps that begin after the first epoch, of rank 0."""
    first = next(event for event in events if isinstance(event, RunStarted)).steps_per_epoch
    return (event for event in of_steps(events, 0) if event.first_step > first)


def epoch_seconds(events: Sequence[Event]) -> list[float]:
    """How long rank 0 trained in each epoch, by the wall clock."""
    phases = [event for event in events if isinstance(event, Phase) and event.rank == 0]
    return [after.mono - one.mono for one, after in pairwise(phases) if one.phase == "training"]


def clock(box: Box) -> None:
    """Of the quickstart, with an evaluation and a checkpoint an epoch, and of steps that keep a GPU busy."""
    configs = {f"quickstart {name}": quickstart_config(box, name) for name in box.able("torch-ddp", "jax-sharding")}
    if not box.on_cpu:
        heavy = msgspec.structs.replace(config_of(box, "tf32"), eval_every=1, checkpoint_every=1, keep_checkpoints=1)
        configs["ResNet-18 torch-ddp"] = heavy
    for name, config in configs.items():
        with box.find.part(name):
            run = box.shared(name.replace(" ", "-"), config)
            run.end()
            wall, accounted = account(run.events)
            most = max(CLOCK_PERCENT, 100 * CLOCK_S / wall)
            box.find.at_most(f"{name}: of {wall:.2f} s, per cent off", 100 * abs(accounted / wall - 1), most, ".2f")


def account(events: Sequence[Event]) -> tuple[float, float]:
    """Seconds of rank 0 from its first training phase to its end: by the wall clock, and those that the run tells of.

    It tells the sum of its steps' times, how long each evaluation took, and, by its phases, how long training waited
    for checkpoints.
    """
    phases = [event for event in events if isinstance(event, Phase) and event.rank == 0]
    began = next(phase.mono for phase in phases if phase.phase == "training")
    ended = next(phase.mono for phase in reversed(phases) if phase.phase == "done")
    saving = sum(after.mono - one.mono for one, after in pairwise(phases) if one.phase == "checkpointing")
    own = [event for event in events if isinstance(event, Metrics) and event.rank == 0]
    told = sum(
        total(event.values[name], event.counts)
        for event in own
        for name in (STEP_TIME, TEST_SECONDS)
        if name in event.values
    )
    return ended - began, told + saving


def streamed(box: Box) -> None:
    """The same images, held on the device and read from a memory map batch by batch."""
    dice = np.random.default_rng(0)
    shape = (28, 28, 1) if box.on_cpu else (LARGE_PIXELS, LARGE_PIXELS, 3)
    for name, size in {"train": CPU_IMAGES if box.on_cpu else LARGE_IMAGES, "test": 256}.items():
        np.save(box.directory / f"x_{name}.npy", dice.integers(0, 256, (size, *shape), np.uint8))
        np.save(box.directory / f"y_{name}.npy", dice.integers(0, 10, size))
    (box.directory / "mapped.py").write_text(MAPPED)
    config = msgspec.structs.replace(
        config_of(box, "float32" if box.on_cpu else "bfloat16"),
        dataset=f"py:{box.directory}/mapped.py:images",
        global_batch_size=CPU_BATCH if box.on_cpu else LARGE_BATCH,
        epochs=4,
    )
    rates = {False: 0.0, True: 0.0}
    machine = inspect_machine()
    for is_streamed in rates:
        # What fits is held: that it is read is decided here.
        plan = msgspec.structs.replace(prepare(config, machine), streamed=is_streamed)
        directory = make_directory(plan, box.runs_dir, machine, About())
        start_supervisor(directory)
        with watching(directory) as run:
            end: RunEnded = run.end()
            run.wait_gone()
        box.find.holds(
            "streamed completes" if is_streamed else "in memory completes", end.status == "completed", end.reason
        )
        rates[is_streamed] = end.summary.examples_per_second or 0.0
    what = f"images/s: in memory {rates[False]:,.0f}, read {rates[True]:,.0f}, ratio"
    box.find.at_least(what, rates[True] / max(1.0, rates[False]), LEAST_ON_CPU if box.on_cpu else LEAST_STREAMED, ".3f")


MAPPED = """
from pathlib import Path

import numpy as np

def images():
    read = lambda name: np.load(Path(__file__).with_name(f"{name}.npy"), mmap_mode="r")
    return read("x_train"), np.array(read("y_train")), read("x_test"), np.array(read("y_test"))
"""
