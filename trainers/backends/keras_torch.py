"""Keras 3 on PyTorch in DistributedDataParallel: one process per device, each with a replica of the model.

There a Keras model's weights are torch parameters, and autograd goes through its layers: DDP wraps it as any module,
and a torch optimizer updates it. Every rank computes the gradients of its slice of the global batch; DDP averages them
by all-reduce while the backward pass still runs. NCCL between GPUs, gloo between CPU ranks. Replaces

    KERAS_BACKEND=torch torchrun --nproc-per-node=N train.py

With `accumulate` a rank takes its slice in parts, one after the other, and exchanges the sum of their gradients.

BatchNorm normalizes with the statistics of the rank's own slice, or part of it; its running statistics are averaged
over the ranks before each evaluation. Until then each rank has its own, and they are left out where the replicas are
compared. Images are channels last, Keras' default, which on CPUs costs little: `net` takes 1.5 times as long as
channels first, `convnet` 0.93 times. Keras gives each convolution images and weights in channels-last memory, as the
tensor cores of GPUs prefer them, by two copies.

Source: https://keras.io/guides/distributed_training_with_torch/
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.frameworks.keras import state as keras_state
from tuiapp.trainers.frameworks.torch.losses import Average, LossScale, begin, losses_of
from tuiapp.trainers.frameworks.torch.profile import SyncWait, replica_checksums
from tuiapp.trainers.frameworks.torch.ranks import (
    average_statistics,
    backward,
    build_optimizer,
    connect,
    distribute,
    evaluate,
    open_data,
    pick_device,
    predictor,
    report_sharding,
    steps_in_flight,
    update,
)
from tuiapp.trainers.frameworks.torch.speed import with_measured_shares
from tuiapp.trainers.frameworks.torch.state import Snapshot, restore, snapshot
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
        self.training_set, self.x_test, self.y_test = open_data(plan, rank, device)
        # Made on the device: Keras takes the current one.
        self.keras_model = keras_state.create_model(plan)
        self.model = KerasModule(self.keras_model)
        begin(plan, self.model, report, checkpoints)
        self.losses = losses_of(plan, device)
        self.plan = with_measured_shares(
            plan, self.model, self.own_loss, self.training_set, device, report, checkpoints
        )
        # The same weights everywhere; Dropout then draws differently on every rank.
        torch.manual_seed((rank << 32) + config.seed)
        self.optimizer, self.average = build_optimizer(config, self.model), Average(config, self.model)
        self.loss_scale = LossScale(config, device)
        self.ddp = distribute(self.model)
        if resumed := checkpoints.resumed:
            # After DDP has given all ranks rank 0's statistics: each gets its own back.
            restore(resumed, rank, self.model, self.optimizer, device, config.devices, self.average, self.loss_scale)

    def train(self) -> None:
        plan, report = self.plan, self.report
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
                    checksums, models = replica_checksums(self.model, with_statistics=False)
                    work.done(checksums, models=models)
                case Evaluate():
                    with self.average.used():
                        sums = evaluate(self.model, self.x_test, self.y_test, plan, nullcontext(), self.losses)
                        # Rank 0 alone tells of it.
                        shown = None if self.rank else partial(predictor, self.model, self.device, nullcontext())
                        work.done(sums, shown)
                case Save():
                    work.done(*self.snapshot())
                case Export():
                    average_statistics(self.model, plan.config.devices, plan.weight_of(self.rank))
                    with self.average.used():
                        if best := self.checkpoints.best_model():
                            self.model.load_state_dict({name: torch.from_numpy(array) for name, array in best.items()})
                        self.checkpoints.export_file(
                            "model.keras", lambda path: keras_state.save(self.keras_model, plan, path)
                        )

    def place(self, order: datasets.Rows) -> Iterable[Any]:
        """Returns this rank's examples of each step."""
        return self.training_set.place(order[:, self.plan.rows_of(self.rank)])

    def step(self, x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, Tensor | None]:
        """Returns this rank's mean loss before the update, and the norm of clipped gradients; on the device."""
        self.optimizer.zero_grad()
        weight = self.plan.weight_of(self.rank)
        loss = backward(self.loss, x, y, self.config.accumulate, self.loss_scale, self.ddp, weight)
        norm = update(self.config, self.model, self.optimizer, rate, self.loss_scale)
        return loss, norm

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.losses.mean(self.ddp(x), y)

    def own_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the loss without the other ranks, which a model in DDP waits for."""
        return self.losses.mean(self.model(x), y)

    def snapshot(self) -> Snapshot:
        context = self.average, self.loss_scale, self.plan.examples
        return snapshot(self.model, self.optimizer, self.device, *context)


class KerasModule(nn.Module):
    """A Keras model as torch code expects a module: weights are parameters, BatchNorm's running statistics buffers.

    Keras itself keeps everything as parameters, including the random state of its layers; but without a seed of its own
    Dropout draws from PyTorch's generator. The tensors are the Keras model's own.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        for path, variable in keras_state.weights(model).items():
            if variable.trainable:
                self.register_parameter(path, variable.value)
            else:
                self.register_buffer(path, variable.value)
        # In a list, or its parameters would count twice.
        self.keras = [model]

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits of images, float32 [N, H, W, C], or of tokens, int64 [N, context]."""
        logits: Tensor = self.keras[0](x, training=self.training)
        return logits
