"""PyTorch DistributedDataParallel: one process per device, each with a replica of the model.

Every rank computes the gradients of its slice of the global batch; DDP averages them by all-reduce while the backward
pass still runs, so all replicas make the same update. NCCL between GPUs, gloo between CPU ranks. Replaces

    torchrun --nproc-per-node=N train.py

BatchNorm normalizes with the statistics of the rank's own slice, or with `sync_batch_norm` with those of the global
batch. Its running statistics are averaged over the ranks before each evaluation, in place of DDP's broadcast from
rank 0 at every step: training does not read them.

Source: https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from trainers.checkpoints import Checkpoints
from trainers.config.run_config import RunConfig
from trainers.data import datasets
from trainers.models.sync_batch_norm import synchronize
from trainers.models.torch_state import restore, snapshot
from trainers.runtime.reporter import Reporter
from trainers.schedules import learning_rate
from trainers.torch_compile import compile_ahead, compile_model
from trainers.torch_ranks import (
    autocast,
    average_statistics,
    build_model,
    build_optimizer,
    connect,
    distribute,
    memory_format,
    pick_device,
    report_sharding,
    sum_up,
    to_device,
    update,
)


def train(config: RunConfig, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Train one rank's replica, from the first step, or that after a checkpoint, to the last.

    Raises:
        Exception: whatever goes wrong; the rank's process reports it.
    """
    device = pick_device(config, report)
    connect(rank, config.devices, device)
    try:
        Replica(config, rank, device, report, checkpoints).train()
    finally:
        dist.destroy_process_group()


class Replica:
    """One rank's replica, its data and its optimizer."""

    def __init__(
        self, config: RunConfig, rank: int, device: torch.device, report: Reporter, checkpoints: Checkpoints
    ) -> None:
        self.config, self.rank, self.device, self.report = config, rank, device, report
        self.checkpoints = checkpoints
        self.local_batch = config.global_batch_size // config.devices
        arrays = datasets.load(config.dataset)
        # Small data sets live on the device whole: a step then indexes, and copies nothing from the host.
        layout = memory_format(config, device)
        self.x_train, self.y_train = to_device(arrays.x_train, arrays.y_train, device, layout)
        self.x_test, self.y_test = to_device(
            arrays.x_test[rank :: config.devices], arrays.y_test[rank :: config.devices], device, layout
        )
        self.model = build_model(config, device)
        if config.sync_batch_norm:
            self.model = synchronize(self.model, device)
        # The same weights everywhere; Dropout then draws differently on every rank.
        torch.manual_seed((rank << 32) + config.seed)
        self.optimizer = build_optimizer(config, self.model)
        # Compiled inside of DDP, whose own code torch.compile does not enter.
        self.ddp = distribute(compile_model(self.model) if config.compile else self.model)
        if checkpoints.resumed:
            # After DDP has given all ranks rank 0's statistics: each gets its own back.
            restore(checkpoints.resumed, rank, self.model, self.optimizer, device, config.devices)
        self.autocast = autocast(config, device)

    def train(self) -> None:
        """All epochs, with the evaluations and checkpoints between them."""
        config, report = self.config, self.report
        done = self.checkpoints.resumed.step if self.checkpoints.resumed else 0
        if config.compile:
            rows = torch.arange(self.local_batch, device=self.device)
            compile_ahead(report, self.model, self.device, lambda: self.loss(rows))
        for epoch in range(config.epoch_of(done + 1), config.last_epoch + 1):
            report.phase("training")
            for step, rows in self.batches(epoch, done):
                if report.save_before(step):
                    self.save(step - 1)
                    report.phase("training")
                if report.stop_before(step):
                    return
                rate = float(learning_rate(config, step))
                loss, norm = self.step(rows, rate)
                report.step(step, loss, len(rows), rate, norm)
                if step == done + 1:
                    batch = self.x_train[rows], self.y_train[rows]
                    report_sharding(report, self.model, self.optimizer, batch, self.rank)
            if config.evaluates_after(step):
                self.evaluate(step)
            if config.saves_after(step):
                self.save(step)
        average_statistics(self.model, config.devices)
        self.checkpoints.export(snapshot(self.model, self.optimizer, self.device)[0])

    def batches(self, epoch: int, done: int) -> Iterator[tuple[int, Tensor]]:
        """The steps of an epoch that are not done, and this rank's example numbers: int64 [local batch]."""
        first, order = datasets.remaining(self.config, len(self.x_train), epoch, done)
        mine = order[:, self.rank * self.local_batch : (self.rank + 1) * self.local_batch]
        # To the device at once, not step by step.
        return enumerate(torch.tensor(mine, device=self.device).unbind(), start=first)

    def step(self, rows: Tensor, rate: float) -> tuple[Tensor, Tensor | None]:
        """One update.

        Returns:
            The mean loss over this rank's own examples, before the update, and the gradients' norm where they are
            clipped; still on the device.
        """
        loss = self.loss(rows)
        self.optimizer.zero_grad()
        loss.backward()
        norm = update(self.config, self.model, self.optimizer, rate)
        return loss.detach(), norm

    def loss(self, rows: Tensor) -> Tensor:
        """The mean loss over the examples of those numbers."""
        with self.autocast:
            return F.cross_entropy(self.ddp(self.x_train[rows]), self.y_train[rows])

    def evaluate(self, step: int) -> None:
        """Loss and accuracy on the whole test set: rank r has examples r, r + N, r + 2N …, each exactly once."""
        self.report.phase("evaluating")
        average_statistics(self.model, self.config.devices)
        self.model.eval()
        sums = sum_up(self.model, self.x_test, self.y_test, self.autocast)
        self.model.train()
        dist.all_reduce(sums)
        total_loss, right, examples = sums.tolist()
        self.report.evaluation(step, total_loss / examples, right / examples, int(examples))

    def save(self, step: int) -> None:
        """Save what training goes on from after a step; all ranks do so after the same one."""
        self.report.phase("checkpointing")
        self.checkpoints.save(step, *snapshot(self.model, self.optimizer, self.device))
