"""Starts its ranks itself, as torch.multiprocessing.spawn's documentation shows."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Settings:
    """Pickled by the name of the module that is `__main__`."""

    port = 0


def work(rank: int, world_size: int, settings: Settings) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(settings.port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    total = torch.ones(1)
    dist.all_reduce(total)
    # One write: unbuffered, `print` writes the line's end by itself, after what the other rank wrote meanwhile.
    sys.stdout.write(f"rank {rank} of {world_size} sum {total.item():.0f}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    import socket

    assert "RANK" not in os.environ
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = Settings()
        settings.port = listener.getsockname()[1]
    mp.spawn(work, args=(2, settings), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
