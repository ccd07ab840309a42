"""A network of two convolutions on small digits, by DistributedDataParallel: one process per device.

torchrun --nproc-per-node 2 ddp_digits.py
tuiapp run ddp_digits.py --set devices=2 -- --epochs 5
"""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import tuiapp
from tuiapp.trainers.sources.datasets import DIGITS_FILE


def main(epochs: int, batch_size: int) -> None:
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

    with np.load(DIGITS_FILE) as digits:
        images = torch.from_numpy(digits["x_train"]).float()[:, None] / 16  # [1437, 1, 8, 8]
        labels = torch.from_numpy(digits["y_train"]).long()
    data = TensorDataset(images, labels)
    sampler: DistributedSampler[object] = DistributedSampler(data)
    loader = DataLoader(data, batch_size, sampler=sampler, drop_last=True)

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 2 * 2, 10),
    )  # fmt: skip
    model = DistributedDataParallel(network.to(device), device_ids=[device.index] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tuiapp.log({"loss": loss})
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    main(**vars(parser.parse_args()))
