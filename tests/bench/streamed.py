"""Steps on images read batch by batch, beside images in memory: `python -m tests.bench.streamed [--help]`.

PyTorch, images of a memory map that the page cache holds: what is measured is what reading, and on a GPU copying, adds
where the disk keeps up. The two ways take turns, round by round, so that what else the machine does falls on both. On a
GPU a round is many steps, and over when they are computed; on the CPU it is one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.bench.bare.common import Race
from tests.bench.bare.on_torch import autocast, finish, memory_format, set_arithmetic
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.frameworks.torch.ranks import TrainingSet
from tuiapp.trainers.sources.arrays import StoredImages

WARM_UP = 5
"""Rounds that are not counted."""


def main() -> None:
    """Prints the medians of both ways, in wall time and in processor time of all threads, for a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32", "bfloat16"])
    parser.add_argument("--model", default="net")
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=32, help="pixels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, help="in a round; by default 1 on the CPU, 50 on a GPU")
    parser.add_argument("--rounds", type=int, help="by default 200 on the CPU, 20 on a GPU")
    options = parser.parse_args()
    on_gpu = options.platform == "cuda"
    steps, rounds = options.steps or (50 if on_gpu else 1), options.rounds or (20 if on_gpu else 200)
    race = Race("", options.model, 1, 1, options.batch, options.platform, options.precision, compile=False)
    set_arithmetic(race)
    if not on_gpu:
        # More threads would wait for each other where other programs run.
        torch.set_num_threads(1)
    device, layout = torch.device(options.platform), memory_format(race)
    random = np.random.default_rng(0)
    shape = (options.side, options.side, 3)
    x = random.integers(0, 256, (options.images, *shape), dtype=np.uint8)
    y = random.integers(0, 10, options.images)
    model = torch_models.build(options.model, shape, 10)
    model = model.to(device, memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    order = random.integers(0, options.images, (rounds * steps, options.batch))
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "x.npy"
        np.save(file, x)
        mapped = StoredImages(np.load(file, mmap_mode="r"))
        sets = {
            "in memory": TrainingSet(x, y, device, layout, classes=10),
            "read": TrainingSet(mapped, y, device, layout, classes=10),
        }
        batches: dict[str, Iterator[Any]] = {name: iter(held.place(order)) for name, held in sets.items()}
        wall: dict[str, list[float]] = {name: [] for name in sets}
        processor: dict[str, list[float]] = {name: [] for name in sets}
        for _ in range(rounds):
            for name, held in sets.items():
                began, began_processor = perf_counter(), process_time()
                for placed in islice(batches[name], steps):
                    images, labels = held.batch(placed)
                    optimizer.zero_grad()
                    with autocast(race):
                        loss = F.cross_entropy(model(images), labels)
                    loss.backward()
                    optimizer.step()
                finish(race)
                wall[name].append((perf_counter() - began) / steps)
                processor[name].append((process_time() - began_processor) / steps)
    for kind, times in (("wall", wall), ("processor", processor)):
        held_s, read_s = median(times["in memory"][WARM_UP:]), median(times["read"][WARM_UP:])
        change = 100 * (read_s / held_s - 1)
        print(f"{kind} time: in memory {1e3 * held_s:.2f} ms, read {1e3 * read_s:.2f} ms: {change:+.1f} %")


if __name__ == "__main__":
    main()
