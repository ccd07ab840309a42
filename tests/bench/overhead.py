"""What reporting adds to a training step: `python -m tests.bench.overhead [PAIRS]`, in about two minutes.

A script's own loop on one thread, held on one core with everything that `tuiapp.init` starts, the recorder too: what it
takes anywhere is taken from the training. The script logs loss, learning rate and gradient norm, tensors all, or does
not, in turns of 20 steps of which the lot decides the first. Given are the median of PAIRS differences, in per cent of
a step, and its 95 % interval, by the bootstrap: on the wall, and in processor time of this process.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from tests.bench.sampler import interval

PAIRS, TURN = 400, 20


def main(pairs: int) -> None:
    """Measures, and prints a line each for wall and processor time."""
    # What `init` starts inherits it.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import tuiapp

    step = training_step()
    dice = random.Random(0)
    walls, processors, number = [], [], 0
    # The recorder may still write when this ends.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        run = tuiapp.init(dir=directory)
        for _ in range(pairs):
            turns: dict[bool, tuple[float, float]] = {}
            for reports in dice.sample((True, False), 2):
                began, began_processor = perf_counter(), process_time()
                for _ in range(TURN):
                    values = step()
                    number += 1
                    if reports:
                        tuiapp.log(values, number)
                turns[reports] = perf_counter() - began, process_time() - began_processor
            walls.append(100 * (turns[True][0] / turns[False][0] - 1))
            processors.append(100 * (turns[True][1] / turns[False][1] - 1))
        run.finish()
    print(f"a step: {1e3 * turns[False][0] / TURN:.2f} ms")
    for name, figures in (("wall", walls), ("processor", processors)):
        low, high = interval(figures, dice)
        print(f"{name} time: {statistics.median(figures):+.2f} % (95 % interval {low:+.2f} to {high:+.2f})")


def training_step() -> Callable[[], dict[str, Any]]:
    """A step of `net` on 48 made-up digits, which returns what a script would log."""
    import torch

    from tuiapp.trainers.frameworks.torch import models as torch_models

    torch.set_num_threads(1)
    model = torch_models.build("net", (28, 28, 1), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.rand(48, 1, 28, 28), torch.randint(0, 10, (48,))

    def step() -> dict[str, Any]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        return {"loss": loss.detach(), "lr": 0.01, "grad_norm": norm}

    return step


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
