"""PyTorch DistributedDataParallel: one process per device, each with a replica of the model.

Every rank computes the gradients of its slice of the global batch; DDP averages them by all-reduce while the backward
pass still runs, so all replicas make the same update. NCCL between GPUs, gloo between CPU ranks. Replaces

    torchrun --nproc-per-node=N train.py

BatchNorm normalizes with the statistics of the rank's own slice, as DDP does without SyncBatchNorm. Its running
statistics are averaged over the ranks before each evaluation, in place of DDP's broadcast from rank 0 at every step:
training does not read them.

Source: https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainers.contract.config import RunConfig
from trainers.contract.data_catalog import find_dataset
from trainers.contract.events import Shard
from trainers.data import datasets
from trainers.models import torch_models
from trainers.runtime.reporter import Reporter
from trainers.schedules import rate_factor

EVAL_BATCH = 1024


def train(config: RunConfig, rank: int, report: Reporter) -> None:
    """Train one rank's replica, from the first step to the last.

    Raises:
        Exception: whatever goes wrong; the rank's process reports it.
    """
    device = pick_device(config, report)
    connect(rank, config.devices, device)
    try:
        Replica(config, rank, device, report).train()
    finally:
        dist.destroy_process_group()


def pick_device(config: RunConfig, report: Reporter) -> torch.device:
    """This rank's device, and the arithmetic that it shall use."""
    torch.backends.cudnn.allow_tf32 = config.precision != "float32"
    torch.set_float32_matmul_precision("highest" if config.precision == "float32" else "high")
    report.convert = lambda losses: torch.stack(losses).tolist()
    if config.platform == "cpu":
        report.rank_started("cpu")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    properties = torch.cuda.get_device_properties(device)
    report.rank_started(str(device), properties.name, config.device_ids[device.index])
    return device


def connect(rank: int, world_size: int, device: torch.device) -> None:
    """Join the process group.

    Rank 0 serves the rendezvous on a socket that was bound for it, on loopback, before any rank started: no other
    process can take the port in between.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listener = int(os.environ["TUIAPP_STORE_FD"]) if rank == 0 else None
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, world_size, is_master=rank == 0, master_listen_fd=listener
    )
    on_gpu = device.type == "cuda"
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        device_id=device if on_gpu else None,
    )


def build_optimizer(config: RunConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer, in PyTorch's conventions."""
    parameters = model.parameters()
    rate, decay = config.learning_rate, config.weight_decay
    match config.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, rate, momentum=config.momentum, weight_decay=decay)
        case "adam":
            return torch.optim.Adam(parameters, rate, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, rate, weight_decay=decay)
        case "adadelta":
            return torch.optim.Adadelta(parameters, rate, weight_decay=decay)
    raise ValueError(config.optimizer)


class Replica:
    """One rank's replica, its data and its optimizer."""

    def __init__(self, config: RunConfig, rank: int, device: torch.device, report: Reporter) -> None:
        self.config, self.rank, self.device, self.report = config, rank, device, report
        self.local_batch = config.global_batch_size // config.devices
        data, arrays = find_dataset(config.dataset), datasets.load(config.dataset)
        # Small data sets live on the device whole: a step then indexes, and copies nothing from the host.
        self.x_train, self.y_train = to_device(arrays.x_train, arrays.y_train, device)
        self.x_test, self.y_test = to_device(
            arrays.x_test[rank :: config.devices], arrays.y_test[rank :: config.devices], device
        )
        torch.manual_seed(config.seed)
        self.model = torch_models.build(config.model, data.input_shape, data.classes).to(device)
        # PyTorch 2.13 gave the option a new name.
        names = signature(DistributedDataParallel).parameters
        option = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
        no_sync: dict[str, Any] = {option: False}
        self.ddp = DistributedDataParallel(self.model, **no_sync)
        self.optimizer = build_optimizer(config, self.model)
        self.rate = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: rate_factor(config, step + 1))
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")

    def train(self) -> None:
        """All epochs, with the evaluations between them."""
        config, step = self.config, 0
        for epoch in range(1, config.epochs + 1):
            self.report.phase("training")
            for rows in self.epoch_rows(epoch):
                if step == config.total_steps:
                    break
                step += 1
                if self.report.stop_before(step):
                    return
                rate = float(self.rate.get_last_lr()[0])
                loss = self.step(rows)
                self.report.step(step, loss, len(rows), rate)
                if step == 1:
                    self.report_sharding(rows)
            if step == config.total_steps or (config.eval_every and epoch % config.eval_every == 0):
                self.evaluate(epoch, step)
            if step == config.total_steps:
                return

    def epoch_rows(self, epoch: int) -> Iterator[Tensor]:
        """This rank's example numbers, step by step: int64 [local batch] on the device."""
        order = datasets.epoch_order(len(self.x_train), self.config.global_batch_size, self.config.seed, epoch)
        mine = order[:, self.rank * self.local_batch : (self.rank + 1) * self.local_batch]
        return iter(torch.tensor(mine, device=self.device).unbind())

    def step(self, rows: Tensor) -> Tensor:
        """One update.

        Returns:
            The mean loss over this rank's own examples, before the update; still on the device.
        """
        with self.autocast:
            loss = F.cross_entropy(self.ddp(self.x_train[rows]), self.y_train[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.rate.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, epoch: int, step: int) -> None:
        """Loss and accuracy on the whole test set: rank r has examples r, r + N, r + 2N …, each exactly once."""
        self.report.phase("evaluating")
        self.average_statistics()
        self.model.eval()
        # Summed loss, right answers, examples.
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        for x, y in zip(self.x_test.split(EVAL_BATCH), self.y_test.split(EVAL_BATCH), strict=True):
            with self.autocast:
                logits = self.model(x)
            loss = F.cross_entropy(logits.float(), y, reduction="sum")
            sums += torch.stack(
                [
                    loss.double(),
                    (logits.argmax(1) == y).sum().double(),
                    torch.tensor(float(len(y)), dtype=torch.float64, device=self.device),
                ]
            )
        self.model.train()
        dist.all_reduce(sums)
        total_loss, right, examples = sums.tolist()
        self.report.evaluation(step, epoch, total_loss / examples, right / examples, int(examples))

    def average_statistics(self) -> None:
        """Give every replica the mean of all replicas' BatchNorm statistics."""
        for buffer in self.model.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= self.config.devices

    def report_sharding(self, rows: Tensor) -> None:
        """Tell how the arrays of the step just made lie on the devices."""
        name, largest = max(self.model.named_parameters(), key=lambda item: item[1].numel())
        self.report_array("batch", self.x_train[rows], split=True)
        self.report_array("labels", self.y_train[rows], split=True)
        self.report_array(f"parameter {name}", largest, split=False)
        for key, value in self.optimizer.state[largest].items():
            if isinstance(value, Tensor) and value.shape == largest.shape:
                self.report_array(f"optimizer {key} of {name}", value, split=False)

    def report_array(self, name: str, local: Tensor, *, split: bool) -> None:
        """Tell what this rank holds of an array: its slice along the first axis, or a whole replica."""
        world = self.config.devices
        index = [(0, size) for size in local.shape]
        shape = list(local.shape)
        if split:
            index[0] = (self.rank * shape[0], (self.rank + 1) * shape[0])
            shape[0] *= world
        shard = Shard(rank=self.rank, device=str(local.device), index=index, bytes=local.numel() * local.element_size())
        spec = ["batch" if split else None] + [None] * (local.dim() - 1)
        dtype = str(local.dtype).removeprefix("torch.")
        self.report.sharding(array=name, shape=shape, dtype=dtype, mesh={"batch": world}, spec=spec, shards=[shard])


def to_device(images: datasets.Images, labels: datasets.Labels, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images as float32 [N, C, H, W], uint8 scaled to 0–1, and labels as int64 [N], on the device."""
    x = torch.from_numpy(images).to(device).permute(0, 3, 1, 2)
    if x.dtype == torch.uint8:
        x = x.float().div_(255)
    return x.contiguous(), torch.from_numpy(labels).to(device)
