"""What is learned: on every backend, and the same as on the CPU."""

from __future__ import annotations

import os
import re
import shutil
import time
from math import isfinite
from typing import Any

from tests.bench.gpu.box import FREED_S, Box, apart, losses
from tests.bench.gpu.findings import SkipCheck
from tests.bench.gpu.smi import MIB, Nvml
from tests.kit.harness import END_S, START_S, Watched, launched
from tests.kit.waiting import wait_until
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import FrameworkMemory, Metrics, RankStarted, RunEnded

LEAST_ACCURACY = 0.95

RUN_S = 60.0
"""For one backend on a GPU: one that hangs leaves time for the others."""

CPU_BACKENDS = ("torch-ddp", "jax-sharding")
"""They stand for all: those of every backend on the CPU are in `tests/processes`."""

CPU_EPOCHS = 4

KNOWN = re.compile(r"absl::InitializeLog|external/xla|could not open file to read NUMA node|NCCL version")
"""What frameworks say of themselves on every GPU."""

STEPS = 20

LIMITS = {"mlp": (STEPS, 1e-5), "net": (STEPS, 5e-3), **dict.fromkeys(("tf32", "bfloat16", "float16"), (1, 2e-2))}
"""How many of a GPU's first losses are how close to the CPU's."""

AHEAD = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""So that several of JAX's processes share a GPU."""


def smoke(box: Box) -> None:
    """Most of the time of a short run its process loads a framework: they do so at once."""
    os.environ.update(AHEAD)
    every = [name for name, backend in BACKENDS.items() if backend.builtin]
    able = list(box.able(*(CPU_BACKENDS if box.on_cpu else every)))
    if not able:
        raise SkipCheck("no backend can train here: see doctor")
    config: dict[str, Any] = {"model": "net", "max_steps": 10, "checkpoint_every": 0}
    runs = box.train_together({name: box.config(backend=name, **config) for name in able})
    for name, run in runs.items():
        started = run.wait(RankStarted)
        if box.gpus:
            box.find.holds(f"{name}: the rank names the GPU", started.uuid == box.gpu.uuid, started.uuid)
        curve = losses(run)
        box.find.holds(f"{name}: ten losses", len(curve) == 10 and all(map(isfinite, curve)), curve[-1:])
        said = (run.run.rank(0) / "stderr.log").read_text(errors="replace").splitlines()
        unknown = [line for line in said if line.strip() and not KNOWN.search(line)]
        box.find.holds(f"{name}: stderr is empty", not unknown, "\n".join(unknown[:5]))


def quickstart(box: Box) -> None:
    every = [name for name, backend in BACKENDS.items() if backend.builtin]
    able = list(box.able(*(CPU_BACKENDS if box.on_cpu else every)))
    if not able:
        raise SkipCheck("no backend can train here: see doctor")
    for backend in able:
        with box.find.part(backend):
            learns(box, backend, quickstart_config(box, backend))


def quickstart_config(box: Box, backend: str) -> RunConfig:
    return box.config(backend=backend, epochs=CPU_EPOCHS if box.on_cpu else 30)


def learns(box: Box, backend: str, config: RunConfig) -> None:
    """Trains one backend on the first GPU, looking at that while it does."""
    before, gpu = box.used_bytes(), None if box.on_cpu else box.gpu
    of_it = gpu.used_bytes() if gpu else 0
    with launched(config, box.runs_dir) as run:
        wait_until(lambda: run.of(RunEnded) or any(event.is_training for event in run.of(Metrics)), START_S)
        if gpu and not run.of(RunEnded):
            inspect_packages(box, backend, run, gpu, of_it)
        end = run.end(END_S if box.on_cpu else RUN_S)
        ended = time.monotonic()
        box.find.holds(f"{backend}: the quickstart completes", end.status == "completed", end.reason or end.status)
        box.find.at_least(f"{backend}: test accuracy", end.summary.test_accuracy, LEAST_ACCURACY, ".3f")
        gone = box.time_until_free(before, [run], ended)
        box.find.at_most(f"{backend}: s until processes and memory are gone", gone, FREED_S, ".2f")
    if end.status == "completed":
        box.share(f"quickstart-{backend}", run)
    if gpu:
        held = max((event.peak_bytes or event.used_bytes or 0 for event in run.of(FrameworkMemory)), default=0)
        box.find.at_least(f"{backend}: the framework's memory, MiB", held / MIB, 1, ".0f")


def inspect_packages(box: Box, backend: str, run: Watched, gpu: Nvml, before: int) -> None:
    """While it trains: its rank is on the GPU that was asked for, by the driver's own account."""
    started = run.wait(RankStarted)
    box.find.holds(f"{backend}: the rank names the GPU", started.uuid == gpu.uuid, started.uuid)
    box.find.at_least(f"{backend}: MiB taken of it", (gpu.used_bytes() - before) / MIB, 100, ".0f")
    if started.pid in (pids := gpu.pids()):
        box.find.holds(f"{backend}: the driver names the rank's process", True, started.pid)
    else:
        # In a container they are the host's, or none.
        box.find.note(f"{backend}: the driver does not show our processes", f"pid {started.pid}, {len(pids)} others")


def same_on_both(box: Box) -> None:
    """torch-ddp and jax-sharding, plain SGD: Adam's first steps turn a gradient's rounding into its sign."""
    os.environ.update(AHEAD)
    for backend in box.able("torch-ddp", "jax-sharding"):
        with box.find.part(backend):
            config: dict[str, Any] = {"backend": backend, "optimizer": "sgd", "learning_rate": 0.05, "max_steps": STEPS}
            runs = box.train_together(
                {
                    f"{backend} mlp on the CPU": RunConfig(**config, model="mlp", platform="cpu", devices=1),
                    f"{backend} net on the CPU": RunConfig(**config, model="net", platform="cpu", devices=1),
                    f"{backend} mlp": box.config(**config, model="mlp"),
                    f"{backend} net": box.config(**config, model="net"),
                    f"{backend} tf32": box.config(**config, model="net", precision="tf32"),
                    f"{backend} bfloat16": box.config(**config, model="net", precision="bfloat16"),
                    f"{backend} float16": box.config(**config, model="net", precision="float16"),
                }
            )
            curve = {name: losses(run) for name, run in runs.items()}
            for name, (steps, most) in LIMITS.items():
                on_cpu = curve[f"{backend} {'mlp' if name == 'mlp' else 'net'} on the CPU"]
                far = apart(curve[f"{backend} {name}"], on_cpu, steps)
                box.find.at_most(f"{backend}, {name}: loss apart in {steps} steps", far, most, ".1e")


def compile_and_sync(box: Box) -> None:
    """In float32 they change nothing but the order of sums, CUDA graphs not even that."""
    config: dict[str, Any] = {
        "model": "net",
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "max_steps": STEPS,
        "checkpoint_every": 0,
    }
    # With two devices each has half of the batch that a single one normalizes whole.
    devices = 2 if box.on_cpu else min(2, len(box.gpus))
    configs = {"plain": box.config(**config), "sync_batch_norm": box.config(devices, **config, sync_batch_norm=True)}
    if not box.on_cpu:
        configs["cuda_graphs"] = box.config(**config, cuda_graphs=True)
    if box.on_cpu:
        box.find.note("compile skipped", "it takes a minute on the CPU; `pytest -m nightly` has it")
    elif shutil.which("cc") or shutil.which("gcc"):
        configs["compile"] = box.config(**config, compile=True)
    else:
        box.find.note("compile skipped", "there is no C compiler (gcc)")
    curve = {name: losses(run) for name, run in box.train_together(configs).items()}
    for name in configs.keys() - {"plain"}:
        far = apart(curve[name], curve["plain"], STEPS)
        box.find.at_most(f"{name}: loss apart in {STEPS} steps", far, 5e-3, ".1e")
