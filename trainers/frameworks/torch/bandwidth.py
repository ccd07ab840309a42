"""`python -m tuiapp.trainers.frameworks.torch.bandwidth MOST_BYTES SECONDS`: one rank that takes part in all-reduces.

NCCL between GPUs, gloo between CPU ranks, as `torch-ddp` has them.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from tuiapp.trainers.frameworks.torch.ranks import join
from tuiapp.trainers.rank.bandwidth import clock, measure, teller

TIMEOUT = timedelta(minutes=5)


def main() -> None:
    """Measures, as the rank that the environment says."""
    most_bytes, seconds = int(sys.argv[1]), float(sys.argv[2])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = bool(os.environ["CUDA_VISIBLE_DEVICES"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    join(rank, world_size, device, TIMEOUT)
    array = torch.zeros(0)

    def time_of(size: int, calls: int) -> float:
        nonlocal array
        if array.nbytes != size:
            # The last is let go before.
            array = torch.zeros(0)
            array = torch.zeros(size // 4, device=device)
        took = torch.tensor(clock(lambda: reduce(array, calls), finish), dtype=torch.float64, device=device)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        return took.item()

    def finish() -> None:
        if on_gpu:
            torch.cuda.synchronize(device)

    measure(dist.get_backend(), time_of, teller(rank), most_bytes, seconds)
    dist.destroy_process_group()


def reduce(array: Tensor, calls: int) -> None:
    """Adds an array up over all ranks, in its place, so many times."""
    for _ in range(calls):
        dist.all_reduce(array)


if __name__ == "__main__":
    main()
