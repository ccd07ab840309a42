"""The same training as PyTorch's guide writes it: torch.multiprocessing, gloo, one process per CPU rank, no telemetry.

`python -m tests.benchmarks.bare_ddp DIGITS MODEL RANKS EPOCHS` prints, as JSON, the monotonic time at which rank 0 has
made its first step, and the examples per second of the epochs after the first.
"""

import json
import os
import socket
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

GLOBAL_BATCH = 48


def build(name: str) -> nn.Module:
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def load(data: str) -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(data) as stored:
        small, labels = stored["x_train"], stored["y_train"].astype(np.int64)
    images = np.pad((small * (255 / 16)).astype(np.uint8).repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2)))
    return torch.from_numpy(images).float().div_(255).unsqueeze(1), torch.from_numpy(labels)


def work(rank: int, world_size: int, port: int, data: str, name: str, epochs: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world_size))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    x, y = load(data)
    torch.manual_seed(0)
    model = DDP(build(name))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    local, steps = GLOBAL_BATCH // world_size, len(x) // GLOBAL_BATCH
    first = 0.0
    seconds = 0.0
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        began = time.monotonic()
        for step in range(steps):
            rows = order[step * GLOBAL_BATCH :][:GLOBAL_BATCH][rank * local : (rank + 1) * local]
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            first = first or time.monotonic()
        seconds += time.monotonic() - began if epoch else 0.0
    if rank == 0:
        rate = (epochs - 1) * steps * GLOBAL_BATCH / seconds if seconds else None
        print(json.dumps({"first_step": first, "examples_per_second": rate}), flush=True)
    dist.destroy_process_group()


def main() -> None:
    data, name, world_size, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = (world_size, port, data, name, epochs)
    mp.spawn(work, args=arguments, nprocs=world_size)  # type: ignore[attr-defined, no-untyped-call]


if __name__ == "__main__":
    main()
