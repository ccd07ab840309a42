"""Energy, beside the driver's own counter, and what measuring costs."""

from __future__ import annotations

import time
from bisect import bisect_left

from tests.bench.gpu.box import Box
from tests.bench.gpu.speed import BATCH, synthetic
from tuiapp.trainers.contract.events import DeviceSample, RankSample

WINDOW_S, CPU_WINDOW_S = 12.0, 5.0

POLL_S = 0.05


def energy(box: Box) -> None:
    values = {"model": "mlp"} if box.on_cpu else {
        "model": "resnet18", "dataset": synthetic(box), "global_batch_size": BATCH, "precision": "bfloat16"
    }  # fmt: skip
    with box.endless(**values) as run:
        run.at_step(10)
        # Its first samples ask more than later ones.
        run.wait(RankSample)
        (sampler,) = run.processes("tuiapp.trainers.telemetry")
        began, used = time.monotonic(), processor_s(sampler.pid)
        counter: list[tuple[float, float]] = []
        while time.monotonic() - began < (CPU_WINDOW_S if box.on_cpu else WINDOW_S):
            if not box.on_cpu and (joules := box.gpu.energy_j()) is not None:
                counter.append((time.monotonic(), joules))
            time.sleep(POLL_S)
        share = (processor_s(sampler.pid) - used) / (time.monotonic() - began)
        samples = [sample for sample in run.of(DeviceSample) if began <= sample.mono <= time.monotonic()]
    box.find.at_most("the sampler's share of a core, %", 100 * share, 1, ".2f")
    if box.on_cpu:
        box.find.note("energy skipped", "there is no GPU")
        return
    told = [(sample.mono, sample.energy_j) for sample in samples if sample.energy_j is not None]
    told = [one for one in told if counter and counter[0][0] <= one[0] <= counter[-1][0]]
    if not counter:
        box.find.note("energy skipped", "the GPU has no counter")
    elif len(told) < 2:
        box.find.holds("samples tell energy", False, f"{len(told)} of {len(samples)}")
    else:
        (first, low), (last, high) = told[0], told[-1]
        counted = at(counter, last) - at(counter, first)
        box.find.at_least("J counted", counted, 1, ".0f")
        box.find.at_most("energy, per cent off the counter", 100 * abs((high - low) / counted - 1), 3, ".2f")


def processor_s(pid: int) -> float:
    """Processor time that a process has used, to the nanosecond, by the clock that clock_getcpuclockid names."""
    return time.clock_gettime((~pid << 3) | 2)


def at(counter: list[tuple[float, float]], moment: float) -> float:
    """The counter between its readings, of which `moment` is neither before the first nor after the last."""
    place = max(1, bisect_left(counter, (moment,)))
    (before, low), (after, high) = counter[place - 1], counter[place]
    return low + (high - low) * (moment - before) / (after - before)
