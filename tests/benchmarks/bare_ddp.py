"""The first step of the same training as PyTorch's guide writes it: torch.multiprocessing, gloo, two ranks.

Prints the monotonic time at which rank 0 has made its first step. Run by `tests.benchmarks.first_step`.
"""

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

WORLD_SIZE = 2
GLOBAL_BATCH = 48


def work(rank: int, port: int, data: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // WORLD_SIZE))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD_SIZE)
    with np.load(data) as stored:
        small, labels = stored["x_train"], stored["y_train"].astype(np.int64)
    images = np.pad((small * (255 / 16)).astype(np.uint8).repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2)))
    x, y = torch.from_numpy(images).float().div_(255).unsqueeze(1), torch.from_numpy(labels)
    torch.manual_seed(0)
    model = DDP(
        nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10),
        )
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    local = GLOBAL_BATCH // WORLD_SIZE
    rows = torch.randperm(len(x))[:GLOBAL_BATCH][rank * local : (rank + 1) * local]
    loss = F.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    loss.item()
    if rank == 0:
        print(time.monotonic(), flush=True)
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, args=(port, sys.argv[1]), nprocs=WORLD_SIZE)  # type: ignore[attr-defined, no-untyped-call]


if __name__ == "__main__":
    main()
