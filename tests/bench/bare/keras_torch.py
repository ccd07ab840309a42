"""A Keras 3 model in PyTorch's DDP as Keras' guide writes it: a DataLoader with a DistributedSampler, no telemetry.

Source: https://keras.io/guides/distributed_training_with_torch/
"""

import os
import socket

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from tests.bench.bare.common import Race
from tests.bench.bare.on_torch import finish, loss_of, set_arithmetic
from tuiapp.trainers.frameworks.keras import models as keras_models


def work(rank: int, port: int, race: Race) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    on_gpu = race.platform == "cuda"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        # More threads than cores would only slow it down.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // race.devices))
    set_arithmetic(race)
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=race.devices)
    images, labels = race.load()
    dataset = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    sampler: DistributedSampler[int] = DistributedSampler(dataset)
    local = race.global_batch_size // race.devices
    loader = DataLoader(dataset, batch_size=local, sampler=sampler, pin_memory=on_gpu, drop_last=True)
    keras.utils.set_random_seed(0)
    model = keras_models.build(race.model, images.shape[1:], race.classes, race.precision)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ddp = torch.nn.parallel.DistributedDataParallel(model.to(device), device_ids=[rank] if on_gpu else None)
    for epoch in range(race.epochs):
        race.begin_epoch()
        sampler.set_epoch(epoch)
        for x, y in loader:
            # The guide calls the model without `training`: BatchNorm and Dropout then do what they do in inference,
            # and a step takes a sixth less.
            loss = loss_of(ddp(x.to(device), training=True), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not race.first_step:
                loss.item()
                race.step_done()
        finish(race)
        race.end_epoch(epoch)
    if rank == 0:
        race.print_result(len(images))
    dist.destroy_process_group()


def main() -> None:
    race = Race.from_command_line()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, args=(port, race), nprocs=race.devices)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
