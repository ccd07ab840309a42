"""PyTorch DataParallel: one process, which owns all GPUs and keeps the one model on the first.

At each step the batch is split over the GPUs, the model is copied to each, a thread per GPU runs the forward pass, and
the outputs are gathered on the first GPU, where the gradients of all copies come together. Replaces

    python train.py

PyTorch recommends DistributedDataParallel in its place: `torch-ddp`. On the CPU there is one device to split over, and
DataParallel only calls the model.

With `accumulate` each batch is taken in parts, one after the other, and the sum of their gradients makes the update.

The copies last for a step: there are no replicas that could part.

BatchNorm normalizes with the statistics of each GPU's own part. The running statistics are those of the first GPU's:
the other copies are discarded after the step.

Source: https://docs.pytorch.org/tutorials/beginner/blitz/data_parallel_tutorial.html
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch.compile import compile_ahead, compile_model, uses_cuda_graphs
from tuiapp.trainers.frameworks.torch.losses import Average, LossScale, begin, losses_of
from tuiapp.trainers.frameworks.torch.ranks import (
    TrainingSet,
    autocast,
    build_model,
    build_optimizer,
    memory_format,
    pick_devices,
    predictor,
    report_array,
    report_largest,
    steps_in_flight,
    sum_up,
    to_device,
    update,
)
from tuiapp.trainers.frameworks.torch.state import Snapshot, restore, snapshot
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.evaluation import Sums, batch_size
from tuiapp.trainers.rank.loop import Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources import datasets

RANDOM = "random.cuda"
"""In a checkpoint, the generator state of each GPU for Dropout: uint8 [devices, …]."""


def train(plan: Plan, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Trains on all devices, from the first step, or the one after a checkpoint, to the last."""
    Trainer(plan, pick_devices(plan.config, report), report, checkpoints).train()


class Autocast(nn.Module):
    """A model whose forward pass chooses its type in the thread that makes it.

    DataParallel's threads take over that autocast is on, but not its type, which is each thread's own: float16, unless
    it is set there.
    """

    def __init__(self, model: nn.Module, config: RunConfig, device: torch.device) -> None:
        super().__init__()
        self.model, self.config, self.device = model, config, device

    def forward(self, x: Tensor) -> Tensor:
        with autocast(self.config, self.device):
            y: Tensor = self.model(x)
        return y


class Trainer:
    def __init__(self, plan: Plan, devices: list[torch.device], report: Reporter, checkpoints: Checkpoints) -> None:
        config = plan.config
        self.plan, self.config, self.devices = plan, config, devices
        self.report, self.checkpoints = report, checkpoints
        self.device = devices[0]
        arrays = datasets.open_planned(plan)
        # What fits lives on the first device whole: a step then indexes, and copies nothing from the host.
        layout = memory_format(config, self.device)
        how = self.device, layout, plan.normalization
        self.training_set = TrainingSet(arrays.x_train, arrays.y_train, *how, classes=plan.data.classes)
        self.x_test, self.y_test = to_device(arrays.x_test, arrays.y_test, *how)
        self.model = build_model(plan, self.device)
        begin(plan, self.model, report, checkpoints)
        self.seed_dropout()
        self.optimizer, self.average = build_optimizer(config, self.model), Average(config, self.model)
        self.loss_scale = LossScale(config, self.device)
        self.scores = losses_of(plan, self.device)
        if checkpoints.resumed:
            restore(checkpoints.resumed, 0, self.model, self.optimizer, self.device, 1, self.average, self.loss_scale)
            self.restore_random(checkpoints.resumed.state.get(RANDOM))
        numbers = list(range(len(devices)))
        self.parallel = nn.DataParallel(Autocast(self.model, config, self.device), numbers)
        # The copies for several GPUs are beyond torch.compile (https://github.com/pytorch/pytorch/issues/94636):
        # such a configuration is refused.
        self.forward = self.parallel
        if config.compile:
            compiled = compile_model(self.model, cuda_graphs=uses_cuda_graphs(config))
            self.forward = nn.DataParallel(Autocast(compiled, config, self.device), numbers)
        self.autocast = autocast(config, self.device)

    def train(self) -> None:
        if self.config.compile:
            x, y = self.training_set.first(self.config.global_batch_size // self.config.accumulate)
            compile_ahead(self.report, self.model, self.device, lambda: self.losses(x, y).mean())
        in_flight = steps_in_flight(self.device, self.loss_scale)
        for work in training(self.plan, self.report, self.checkpoints, place=self.training_set.place, **in_flight):
            match work:
                case Step():
                    x, y = self.training_set.batch(work.rows)
                    work.done(*self.step(x, y, float(work.rate)))
                    self.average.update(work.number)
                    if work.is_first:
                        self.report_sharding(x, y, work.rows[0])
                case Evaluate():
                    with self.average.used():
                        work.done(self.evaluate(), partial(predictor, self.model, self.device, self.autocast))
                case Save():
                    work.done(*self.snapshot())
                case Export():
                    self.checkpoints.export(self.snapshot().complete())

    def step(self, x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, Tensor | None]:
        """Returns each device's mean loss before the update, float32 [devices], and the norm of clipped gradients."""
        self.optimizer.zero_grad()
        parts, devices = self.config.accumulate, len(self.devices)
        means = torch.zeros(devices, device=self.device)
        for part in zip(split(x, devices, parts), split(y, devices, parts), strict=True):
            losses = self.losses(*part)
            self.loss_scale.scale(losses.mean() / parts).backward()
            means += mean_per_device(losses.detach(), devices) / parts
        return means, update(self.config, self.model, self.optimizer, rate, self.loss_scale)

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the loss of each example of a batch, the mean over its labels, on the first device."""
        with self.autocast:
            return self.scores.trained(self.forward(x), y).view(len(x), -1).mean(1)

    def evaluate(self) -> Sums:
        """Returns sums over the test set, each example exactly once."""
        self.model.eval()
        how, at_once = (self.plan.data.classes, self.autocast, self.scores), batch_size(self.plan, len(self.devices))
        sums = sum_up(self.parallel, self.x_test, self.y_test, *how, at_once=at_once)
        self.model.train()
        return sums.numpy(force=True)

    def snapshot(self) -> Snapshot:
        taken = snapshot(self.model, self.optimizer, self.device, self.average, self.loss_scale)
        if self.device.type == "cuda":
            taken.state[RANDOM] = np.stack([torch.cuda.get_rng_state(device).numpy() for device in self.devices])
        return taken

    def seed_dropout(self) -> None:
        """Makes Dropout draw differently on every device, and on the first as rank 0 of torch-ddp does."""
        torch.manual_seed(self.config.seed)
        for number, device in enumerate(self.devices):
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed((number << 32) + self.config.seed)

    def restore_random(self, saved: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None) -> None:
        if self.device.type == "cuda" and saved is not None and len(saved) == len(self.devices):
            for state, device in zip(saved, self.devices, strict=True):
                torch.cuda.set_rng_state(torch.from_numpy(state), device)

    def scatter(self, batch: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], ...]:
        if len(self.devices) == 1:
            return (batch,)
        parts: tuple[tuple[Tensor, ...], ...] = self.parallel.scatter(batch, {}, self.parallel.device_ids)[0]
        return parts

    def report_sharding(self, x: Tensor, y: Tensor, rows: Tensor) -> None:
        """Reports how the arrays of the last step were laid out: the images over all devices, all else on the first."""
        mesh, examples = {"batch": len(self.devices)}, rows.numpy(force=True)
        for number, (part, taken) in enumerate(self.scatter((x, rows))):
            report_array(self.report, "batch", part, number, mesh, (taken, examples))
        # The outputs are gathered before they meet the labels.
        report_array(self.report, "labels", y, 0, mesh)
        report_largest(self.report, self.model, self.optimizer, 0, mesh)


def split(batch: Tensor, devices: int, parts: int) -> list[Tensor]:
    """Returns equal parts of a batch, with as many of each device's examples: DataParallel gives each its own."""
    if parts == 1:
        return [batch]
    return [part.flatten(0, 1) for part in batch.unflatten(0, (devices, parts, -1)).unbind(1)]


def mean_per_device(losses: Tensor, devices: int) -> Tensor:
    """Returns each device's mean over its own examples: DataParallel gives the batch's first to the first device."""
    return losses.view(devices, -1).mean(1)
