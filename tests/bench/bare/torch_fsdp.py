"""PyTorch FSDP2 as its tutorial writes it: each block is a part, then the rest, no telemetry.

Source: https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from tests.bench.bare.common import Race
from tests.bench.bare.on_torch import (
    as_tensor,
    autocast,
    finish,
    loss_of,
    memory_format,
    moved,
    set_arithmetic,
)
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.frameworks.torch.compile import compile_model


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
    dataset = TensorDataset(as_tensor(images), torch.from_numpy(labels))
    sampler: DistributedSampler[int] = DistributedSampler(dataset)
    local = race.global_batch_size // race.devices
    loader = DataLoader(dataset, batch_size=local, sampler=sampler, pin_memory=on_gpu, drop_last=True)
    torch.manual_seed(0)
    layout = memory_format(race)
    model = torch_models.build(race.model, images.shape[1:], race.classes).to(device, memory_format=layout)  # type: ignore[call-overload]
    mesh = init_device_mesh(race.platform, (race.devices,))
    for module in model.modules():
        if isinstance(module, torch_models.Block | torch_models.Residual):
            if race.compile:
                module.forward = compile_model(module.forward, cuda_graphs=False)  # type: ignore[method-assign]
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(race.epochs):
        race.begin_epoch()
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            with autocast(race):
                loss = loss_of(model(moved(x, device, race)), y.to(device))
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
