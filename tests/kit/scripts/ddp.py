"""As PyTorch's own tutorials write it for torchrun: it knows nothing of tuiapp."""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--fail-at", type=int, default=0)
    parser.add_argument("--note", default="")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    what = {"argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(), "note": options.note, "environ": {**os.environ}}
    with open(f"seen-{rank}.json", "w") as file:
        json.dump(what | {"elastic": dist.is_torchelastic_launched()}, file)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        loss = model(torch.ones(8, 4) * (rank + 1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if rank == 1 and step == options.fail_at:
            raise ValueError("the script's own failure")
        print(f"step {step} loss {loss.item():.6f}")
        time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
