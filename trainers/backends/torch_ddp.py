"""PyTorch DistributedDataParallel: one process per device, each with a replica of the model.

Every rank computes the gradients of its slice of the global batch; DDP averages them by all-reduce while the backward
pass still runs, so all replicas make the same update. NCCL between GPUs, gloo between CPU ranks. Replaces

    torchrun --nproc-per-node=N train.py

With `accumulate` a rank takes its slice in parts, one after the other, and exchanges the sum of their gradients. With
`shares` the slices are unequal, and each rank's loss counts by the size of its own.

BatchNorm normalizes with the statistics of the rank's own slice, or part of it, or with `sync_batch_norm` with those of
all ranks. Its running statistics are averaged over the ranks before each evaluation, in place of DDP's broadcast from
rank 0 at every step: training does not read them. Until then each rank has its own, and they are left out where the
replicas are compared.

Source: https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.frameworks.torch.compile import Graph, compile_ahead, compile_model, uses_cuda_graphs
from tuiapp.trainers.frameworks.torch.losses import Average, LossScale, begin, losses_of
from tuiapp.trainers.frameworks.torch.profile import SyncWait, replica_checksums
from tuiapp.trainers.frameworks.torch.ranks import (
    autocast,
    average_statistics,
    backward,
    build_model,
    build_optimizer,
    connect,
    distribute,
    evaluate,
    memory_format,
    open_data,
    pick_device,
    predictor,
    report_sharding,
    steps_in_flight,
    update,
)
from tuiapp.trainers.frameworks.torch.speed import with_measured_shares
from tuiapp.trainers.frameworks.torch.state import Snapshot, restore, snapshot
from tuiapp.trainers.frameworks.torch.sync_batch_norm import synchronize
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.loop import Compare, Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources import datasets


def train(plan: Plan, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Trains one rank's replica, from the first step, or the one after a checkpoint, to the last."""
    device = pick_device(plan.config, report)
    connect(plan.config, rank, device, report)
    Replica(plan, rank, device, report, checkpoints).train()
    # Not after an exception: NCCL would wait for the kernels of ranks that wait for this one.
    dist.destroy_process_group()


class Replica:
    def __init__(self, plan: Plan, rank: int, device: torch.device, report: Reporter, checkpoints: Checkpoints) -> None:
        config = plan.config
        self.plan, self.config, self.rank, self.device = plan, config, rank, device
        self.report, self.checkpoints = report, checkpoints
        self.training_set, self.x_test, self.y_test = open_data(plan, rank, device, memory_format(config, device))
        self.model = build_model(plan, device)
        begin(plan, self.model, report, checkpoints)
        self.autocast = autocast(config, device)
        self.losses = losses_of(plan, device)
        plan = self.plan = with_measured_shares(
            plan, self.model, self.own_loss, self.training_set, device, report, checkpoints
        )
        if config.sync_batch_norm:
            self.model = synchronize(self.model, device, plan.examples)
        # The same weights everywhere; Dropout then draws differently on every rank.
        torch.manual_seed((rank << 32) + config.seed)
        self.optimizer, self.average = build_optimizer(config, self.model), Average(config, self.model)
        self.loss_scale = LossScale(config, device)
        # Compiled inside DDP, whose own code torch.compile does not enter.
        graphs = uses_cuda_graphs(config)
        self.ddp = distribute(compile_model(self.model, cuda_graphs=graphs) if config.compile else self.model)
        self.passes = Graph(self.model, self.gradients) if config.cuda_graphs else self.gradients
        if resumed := checkpoints.resumed:
            # After DDP has given all ranks rank 0's statistics: each gets its own back.
            restore(resumed, rank, self.model, self.optimizer, device, config.devices, self.average, self.loss_scale)

    def train(self) -> None:
        plan, config, report = self.plan, self.config, self.report
        if config.compile:
            x, y = self.training_set.first(plan.batch_of(self.rank) // config.accumulate)
            compile_ahead(report, self.model, self.device, lambda: self.loss(x, y))
        in_flight, waited = steps_in_flight(self.device, self.loss_scale), SyncWait(self.ddp, self.device, report)
        for work in training(plan, report, self.checkpoints, place=self.place, **in_flight):
            match work:
                case Step():
                    x, y = self.training_set.batch(work.rows)
                    work.done(*self.step(x, y, float(work.rate)))
                    self.average.update(work.number)
                    waited.report(work.number)
                    if work.is_first:
                        split = work.rows[0], work.batch
                        report_sharding(report, self.model, self.optimizer, (x, y), self.rank, split)
                case Compare():
                    checksums, models = replica_checksums(self.model, with_statistics=self.config.sync_batch_norm)
                    work.done(checksums, models=models)
                case Evaluate():
                    with self.average.used():
                        sums = evaluate(self.model, self.x_test, self.y_test, plan, self.autocast, self.losses)
                        # Rank 0 alone tells of it.
                        shown = None if self.rank else partial(predictor, self.model, self.device, self.autocast)
                        work.done(sums, shown)
                case Save():
                    work.done(*self.snapshot())
                case Export():
                    average_statistics(self.model, plan.config.devices, plan.weight_of(self.rank))
                    self.checkpoints.export(self.snapshot().complete())

    def place(self, order: datasets.Rows) -> Iterable[Any]:
        """Returns this rank's examples of each step."""
        return self.training_set.place(order[:, self.plan.rows_of(self.rank)])

    def step(self, x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, Tensor | None]:
        """Returns this rank's mean loss before the update, and the norm of clipped gradients; on the device."""
        loss = self.passes(x, y)
        return loss, update(self.config, self.model, self.optimizer, rate, self.loss_scale)

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Makes the gradients, averaged over the ranks; returns this rank's mean loss, on the device."""
        self.optimizer.zero_grad()
        weight = self.plan.weight_of(self.rank)
        return backward(self.loss, x, y, self.config.accumulate, self.loss_scale, self.ddp, weight)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        with self.autocast:
            return self.losses.mean(self.ddp(x), y)

    def own_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the loss without the other ranks, which a model in DDP waits for."""
        with self.autocast:
            return self.losses.mean(self.model(x), y)

    def snapshot(self) -> Snapshot:
        context = self.average, self.loss_scale, self.plan.examples
        return snapshot(self.model, self.optimizer, self.device, *context)
