"""What the checks have in common: the machine, its GPU, and runs on it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.gpu.findings import Findings
from tests.bench.gpu.smi import MIB, Nvml
from tests.kit.harness import Watched, launched
from tuiapp.library.environments import inspect_environments
from tuiapp.trainers.config.machine import inspect_machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import RunEnded
from tuiapp.trainers.contract.rundir import RunDir

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]

FREED_S = 5.0
"""In which a GPU's memory is free again after a rank's or a supervisor's end."""

SLACK_BYTES = 64 * MIB
"""By which what a GPU holds may differ without anything that we hold there."""


@dataclass(frozen=True)
class Box:
    report: Path
    """The whole report's directory; its `runs` are shared by the checks."""
    name: str
    """The check's: its files are in a directory of that name."""
    gpus: tuple[str, ...]
    """UUIDs of the GPUs to use, idle ones first; empty: the checks run on the CPU."""
    find: Findings

    @property
    def on_cpu(self) -> bool:
        return not self.gpus

    @property
    def gpu(self) -> Nvml:
        """The one that checks of a single GPU take."""
        return Nvml(self.gpus[0])

    @property
    def directory(self) -> Path:
        """For logs and pictures of this check."""
        return _made(self.report / self.name)

    @property
    def runs_dir(self) -> Path:
        return self.report / "runs"

    def config(self, devices: int = 1, **values: Any) -> RunConfig:
        """A configuration for the first GPUs, or for CPU ranks."""
        if self.on_cpu:
            return RunConfig(platform="cpu", devices=devices, **values)
        return RunConfig(platform="cuda", devices=devices, device_ids=self.gpus[:devices], **values)

    def able(self, *backends: str) -> Iterator[str]:
        """Those of the backends that can train here; of the others the reason is noted."""
        machine = inspect_machine()
        found = {one.backend: one for one in inspect_environments()}
        for backend in backends:
            one = found[backend]
            if reason := one.unavailable or ("" if self.on_cpu else one.without_gpus(machine)):
                self.find.note(f"{backend} skipped", reason)
            else:
                yield backend

    def train(self, config: RunConfig) -> tuple[Watched, RunEnded]:
        """Trains to the end, whatever that is; no process of the run is left."""
        with launched(config, self.runs_dir) as run:
            end = run.end()
            run.wait_gone()
        return run, end

    def train_together(self, configs: Mapping[str, RunConfig]) -> dict[str, Watched]:
        """Trains all at once: most of the time of a short run its process loads a framework."""
        with ExitStack() as stack:
            runs = {name: stack.enter_context(launched(config, self.runs_dir)) for name, config in configs.items()}
            for name, run in runs.items():
                end = run.end()
                self.find.holds(f"{name}: the run completes", end.status == "completed", end.reason or end.status)
        return runs

    def shared(self, name: str, config: RunConfig) -> Watched:
        """A run that completes, trained once for all checks that ask for this name."""
        known = _made(self.report / "shared") / name
        if known.exists():
            return Watched(RunDir(Path(known.read_text())))
        run, end = self.train(config)
        if end.status != "completed":
            raise AssertionError(f"the run {name}, {run.run.path}, {end.status}: {end.reason}")
        self.share(name, run)
        return run

    def share(self, name: str, run: Watched) -> None:
        """Lets other checks have a run that has completed."""
        (_made(self.report / "shared") / name).write_text(str(run.run.path))

    def tuiapp(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of the program's, to its end."""
        return subprocess.run(
            [*TUIAPP, *words], capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )

    def used_bytes(self) -> int:
        """Of all the GPUs' memory; 0 on the CPU."""
        return sum(Nvml(uuid).used_bytes() for uuid in self.gpus)

    def time_until_free(self, before: int, runs: Sequence[Watched], since: float) -> float:
        """Seconds from `since`, of the monotonic clock, until no process of the runs is left and the GPUs' memory is as
        `before`; infinite if that takes far longer than it may.
        """
        deadline = since + 4 * FREED_S
        while any(run.processes() for run in runs) or self.used_bytes() > before + SLACK_BYTES:
            if time.monotonic() > deadline:
                return float("inf")
            time.sleep(0.05)
        return time.monotonic() - since

    @contextmanager
    def endless(self, **values: Any) -> Iterator[Watched]:
        """A run that goes on until it is ended."""
        config = self.config(epochs=100_000, eval_every=0, checkpoint_every=0)
        with launched(msgspec.structs.replace(config, **values), self.runs_dir) as run:
            yield run


def losses(run: Watched) -> list[float]:
    """Mean loss over the ranks, step by step."""
    each = [run.losses(rank) for rank in range(run.started.world_size)]
    return [sum(step) / len(step) for step in zip(*each, strict=True)]


def apart(curve: Sequence[float], other: Sequence[float], steps: int) -> float | None:
    """The largest difference over the first steps; None if one is shorter."""
    if min(len(curve), len(other)) < steps:
        return None
    return max(abs(one - two) for one, two in zip(curve[:steps], other[:steps], strict=True))


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
