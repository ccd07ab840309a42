"""What the sampler costs: `python -m tests.bench.sampler [WINDOWS [PAIRS]]`, in about four minutes.

Prints the share of a core that a sampler of 8 scripted GPUs and 8 ranks' processes uses at 1 Hz and at 4 Hz, in
WINDOWS windows of 5 s, by the process's own clock (nanoseconds; /proc counts in hundredths of a second).

Then what it does to a training step, at its worst: `net` trains in this process on one thread, and a sampler is held
on the same core, suspended. It is let go for the one or the other, by lot, of two turns of 0.2 s, and takes a single
sample then. By how much the steps of that turn took longer than those of the other is what a second of training loses
at 1 Hz: in processor time, which holds what the sampler does to the caches, and on the wall, which holds that and the
sampler's own time, but also all that anybody else does on that core. Given are the median of PAIRS such differences and
its 95 % interval, by the bootstrap. What disturbs a turn counts for a fifth of what it would in turns of a second, and
there are five times as many of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from tests.kit.fake_nvml import FakeNvml, several
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.telemetry.handover import SamplerConfig, encode_config

GPUS = RANKS = 8
WINDOW_S = 5.0
TURN_S = 0.2
REST_S = 0.1
"""Between two pairs of turns: what is left of the pair before is over then."""
DRAWS = 4000


def process_seconds(pid: int) -> float:
    """Processor time that a process has used, to the nanosecond, by the clock that clock_getcpuclockid names."""
    return time.clock_gettime((~pid << 3) | 2)


@contextlib.contextmanager
def sampling(nvml: FakeNvml, directory: Path, interval_s: float) -> Iterator[int]:
    """A sampler's process."""
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(RANKS)]
    ranks = {rank: process.pid for rank, process in enumerate(sleepers)}
    order = SamplerConfig(run_dir=str(directory), ranks=ranks, gpus="all", interval_s=interval_s)
    held = [f"process {pid} 1000000" for pid in ranks.values()]
    nvml.say(script(held))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tuiapp.trainers.telemetry", encode_config(order)],
        stdout=subprocess.DEVNULL,
        env=nvml.run_environment(),
    ) as process:
        try:
            # Imports, and what is asked once.
            time.sleep(3)
            yield process.pid
        finally:
            for one in (process, *sleepers):
                one.kill()
                one.wait()


def script(held: list[str]) -> str:
    """GPUs that each one process works on."""
    gpus = several(GPUS).split("gpu ")[1:]
    return "".join(f"gpu {gpu}{line}\n" for gpu, line in zip(gpus, held, strict=True))


def cost(nvml: FakeNvml, directory: Path, windows: int) -> None:
    """Print the share of a core at either pace."""
    for interval_s in (1.0, 0.25):
        with sampling(nvml, directory, interval_s) as pid:
            shares = []
            for _ in range(windows):
                began, used = time.monotonic(), process_seconds(pid)
                time.sleep(WINDOW_S)
                shares.append(100 * (process_seconds(pid) - used) / (time.monotonic() - began))
        print(
            f"{1 / interval_s:.0f} Hz: {statistics.median(shares):.2f} % of a core "
            f"({min(shares):.2f} to {max(shares):.2f}, {windows} windows of {WINDOW_S:.0f} s)",
            flush=True,
        )


def effect(nvml: FakeNvml, directory: Path, pairs: int) -> None:
    """Print by how much a second of training takes longer for a sample that is taken on the same core."""
    dice = random.Random(0)
    core = {max(os.sched_getaffinity(0))}
    step = training_step()
    os.sched_setaffinity(0, core)
    differences: list[tuple[float, float]] = []
    used = 0.0
    # Let go, it samples at once, and not again before two turns have passed.
    with sampling(nvml, directory, 2 * (TURN_S + REST_S)) as pid:
        os.sched_setaffinity(pid, core)
        for _ in range(pairs):
            os.kill(pid, signal.SIGSTOP)
            mean_step(step, REST_S)
            before, turns = process_seconds(pid), {}
            for runs in dice.sample((True, False), 2):
                turns[runs] = mean_step(step, TURN_S, lambda: os.kill(pid, signal.SIGCONT if runs else signal.SIGSTOP))  # noqa: B023
                os.kill(pid, signal.SIGSTOP)
            used += process_seconds(pid) - before
            steps = turns[True].steps
            wall, processor = (steps * (turns[True][which] - turns[False][which]) for which in (1, 2))
            differences.append((100 * wall, 100 * processor))
        os.kill(pid, signal.SIGCONT)
    print(f"a sample took {1000 * used / pairs:.2f} ms of that core's time: {100 * used / pairs:.2f} % at 1 Hz")
    for name, figures in zip(("wall time", "processor time"), zip(*differences, strict=True), strict=True):
        low, high = interval(figures, dice)
        first, _, third = statistics.quantiles(figures, n=4)
        print(
            f"a step's {name} with a sample a second on the same core: {statistics.median(figures):+.2f} % "
            f"(95 % interval {low:+.2f} to {high:+.2f}; {pairs} pairs of turns of {TURN_S} s, "
            f"quartiles {first:+.2f} to {third:+.2f})",
            flush=True,
        )


def interval(figures: Sequence[float], dice: random.Random) -> tuple[float, float]:
    """The middle 95 % of the medians of as many figures, drawn from these with replacement."""
    medians = sorted(statistics.median(dice.choices(figures, k=len(figures))) for _ in range(DRAWS))
    return medians[DRAWS // 40], medians[-DRAWS // 40]


def training_step() -> Callable[[], None]:
    """A step of `net` on 48 made-up digits, on one thread."""
    torch.set_num_threads(1)
    model = torch_models.build("net", (28, 28, 1), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.rand(48, 1, 28, 28), torch.randint(0, 10, (48,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


class Mean(NamedTuple):
    """Of the steps of a turn."""

    steps: int
    wall_s: float
    processor_s: float


def mean_step(step: Callable[[], None], seconds: float, first: Callable[[], None] = lambda: None) -> Mean:
    """Wall time and processor time per step, over a turn that begins with a call."""
    began, used, steps = time.perf_counter(), time.process_time(), 0
    first()
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
    return Mean(steps, (time.perf_counter() - began) / steps, (time.process_time() - used) / steps)


def main() -> None:
    """Print all figures."""
    words = [*sys.argv[1:], *("4", "360")[len(sys.argv) - 1 :]]
    windows, pairs = map(int, words)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        nvml = FakeNvml(directory, several(GPUS))
        cost(nvml, directory, windows)
        if pairs:
            effect(nvml, directory, pairs)


if __name__ == "__main__":
    main()
