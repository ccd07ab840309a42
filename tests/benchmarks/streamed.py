"""Steps on images read batch by batch, beside steps on images in memory: `python -m tests.benchmarks.streamed`.

PyTorch, 20,000 images of 32×32×3 in a memory map that the page cache holds: what is measured is what reading adds where
the disk keeps up. The two ways take turns step by step, so that what else the machine does falls on both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from trainers.data.stored import StoredImages
from trainers.models import torch_models
from trainers.torch_ranks import TrainingSet

IMAGES, SIDE, BATCH, STEPS = 20_000, 32, 64, 200
LAYOUT = torch.contiguous_format


def main() -> None:
    """Prints the medians of both ways, in wall time and in processor time of all threads."""
    # More threads would wait for each other where other programs run.
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (IMAGES, SIDE, SIDE, 3), dtype=np.uint8)
    y = random.integers(0, 10, IMAGES)
    model = torch_models.build("net", (SIDE, SIDE, 3), 10)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    order = random.permutation(IMAGES)[: STEPS * BATCH].reshape(STEPS, BATCH)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "x.npy"
        np.save(file, x)
        mapped = StoredImages(np.load(file, mmap_mode="r"))
        sets = {
            "in memory": TrainingSet(x, y, torch.device("cpu"), LAYOUT),
            "read": TrainingSet(mapped, y, torch.device("cpu"), LAYOUT),
        }
        batches: dict[str, Iterator[Any]] = {name: iter(held.place(order)) for name, held in sets.items()}
        wall: dict[str, list[float]] = {name: [] for name in sets}
        processor: dict[str, list[float]] = {name: [] for name in sets}
        for _ in range(STEPS):
            for name, held in sets.items():
                began, began_processor = perf_counter(), process_time()
                images, labels = held.batch(next(batches[name]))
                optimizer.zero_grad()
                F.cross_entropy(model(images), labels).backward()
                optimizer.step()
                wall[name].append(perf_counter() - began)
                processor[name].append(process_time() - began_processor)
    for kind, times in (("wall", wall), ("processor", processor)):
        held_s, read_s = median(times["in memory"][5:]), median(times["read"][5:])
        change = 100 * (read_s / held_s - 1)
        print(f"{kind} time: in memory {1e3 * held_s:.2f} ms, read {1e3 * read_s:.2f} ms: {change:+.1f} %")


if __name__ == "__main__":
    main()
