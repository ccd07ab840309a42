"""PyTorch DataParallel: one process, which owns all GPUs and keeps the one model on the first.

At each step the batch is split over the GPUs, the model is copied to each, a thread per GPU runs the forward pass, and
the outputs are gathered on the first GPU, where the gradients of all copies come together. Replaces

    python train.py

PyTorch recommends DistributedDataParallel in its place: `torch-ddp`. On the CPU there is one device to split over, and
DataParallel only calls the model.

BatchNorm normalizes with the statistics of each GPU's own part. The running statistics are those of the first GPU's:
the other copies are thrown away after the step.

Source: https://docs.pytorch.org/tutorials/beginner/blitz/data_parallel_tutorial.html
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers.checkpoints import Checkpoints
from trainers.config.run_config import RunConfig
from trainers.data import datasets
from trainers.models.torch_state import restore, snapshot
from trainers.runtime.reporter import Reporter
from trainers.schedules import learning_rate
from trainers.torch_compile import compile_ahead, compile_model
from trainers.torch_ranks import (
    autocast,
    build_model,
    build_optimizer,
    memory_format,
    pick_devices,
    report_array,
    sum_up,
    to_device,
    update,
)

RANDOM = "random.cuda"
"""In a checkpoint, what Dropout draws from on each GPU: uint8 [devices, …]."""


def train(config: RunConfig, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Train on all devices, from the first step, or that after a checkpoint, to the last.

    Raises:
        Exception: whatever goes wrong; the rank's process reports it.
    """
    Trainer(config, pick_devices(config, report), report, checkpoints).train()


class Trainer:
    """The model, its data and its optimizer, on the first device."""

    def __init__(
        self, config: RunConfig, devices: list[torch.device], report: Reporter, checkpoints: Checkpoints
    ) -> None:
        self.config, self.devices, self.report, self.checkpoints = config, devices, report, checkpoints
        self.device = devices[0]
        arrays = datasets.load(config.dataset)
        # Small data sets live on the first device whole: a step then indexes, and copies nothing from the host.
        layout = memory_format(config, self.device)
        self.x_train, self.y_train = to_device(arrays.x_train, arrays.y_train, self.device, layout)
        self.x_test, self.y_test = to_device(arrays.x_test, arrays.y_test, self.device, layout)
        self.model = build_model(config, self.device)
        self.seed_dropout()
        self.optimizer = build_optimizer(config, self.model)
        if checkpoints.resumed:
            restore(checkpoints.resumed, 0, self.model, self.optimizer, self.device, world_size=1)
            self.restore_random(checkpoints.resumed.state.get(RANDOM))
        numbers = list(range(len(devices)))
        self.parallel = nn.DataParallel(self.model, numbers)
        # The copies for several GPUs are beyond torch.compile (https://github.com/pytorch/pytorch/issues/94636):
        # such a configuration is refused.
        self.forward = nn.DataParallel(compile_model(self.model), numbers) if config.compile else self.parallel
        self.autocast = autocast(config, self.device)

    def train(self) -> None:
        """All epochs, with the evaluations and checkpoints between them."""
        config, report = self.config, self.report
        done = self.checkpoints.resumed.step if self.checkpoints.resumed else 0
        if config.compile:
            rows = torch.arange(config.global_batch_size, device=self.device)
            compile_ahead(report, self.model, self.device, lambda: self.losses(rows).mean())
        for epoch in range(config.epoch_of(done + 1), config.last_epoch + 1):
            report.phase("training")
            first, order = datasets.remaining(config, len(self.x_train), epoch, done)
            # To the device at once, not step by step.
            for step, rows in enumerate(torch.tensor(order, device=self.device).unbind(), start=first):
                if report.save_before(step):
                    self.save(step - 1)
                    report.phase("training")
                if report.stop_before(step):
                    return
                rate = float(learning_rate(config, step))
                losses, norm = self.step(rows, rate)
                report.step(step, losses, len(rows) // config.devices, rate, norm)
                if step == done + 1:
                    self.report_sharding(self.x_train[rows], self.y_train[rows])
            if config.evaluates_after(step):
                self.evaluate(step)
            if config.saves_after(step):
                self.save(step)
        self.checkpoints.export(snapshot(self.model, self.optimizer, self.device)[0])

    def step(self, rows: Tensor, rate: float) -> tuple[Tensor, Tensor | None]:
        """One update.

        Returns:
            Each device's mean loss over its own part of the batch, before the update: float32 [devices]; and the
            gradients' norm where they are clipped.
        """
        losses = self.losses(rows)
        self.optimizer.zero_grad()
        losses.mean().backward()
        norm = update(self.config, self.model, self.optimizer, rate)
        return mean_per_device(losses.detach(), len(self.devices)), norm

    def losses(self, rows: Tensor) -> Tensor:
        """The loss of each example of those numbers, on the first device."""
        with self.autocast:
            return F.cross_entropy(self.forward(self.x_train[rows]), self.y_train[rows], reduction="none")

    def evaluate(self, step: int) -> None:
        """Loss and accuracy on the whole test set, each example exactly once."""
        self.report.phase("evaluating")
        self.model.eval()
        loss, right, examples = sum_up(self.parallel, self.x_test, self.y_test, self.autocast).tolist()
        self.model.train()
        self.report.evaluation(step, loss / examples, right / examples, int(examples))

    def save(self, step: int) -> None:
        """Save what training goes on from after a step."""
        self.report.phase("checkpointing")
        model, state = snapshot(self.model, self.optimizer, self.device)
        if self.device.type == "cuda":
            state[RANDOM] = np.stack([torch.cuda.get_rng_state(device).numpy() for device in self.devices])
        self.checkpoints.save(step, model, state)

    def seed_dropout(self) -> None:
        """Let Dropout draw differently on every device, and on the first as rank 0 of torch-ddp does."""
        torch.manual_seed(self.config.seed)
        for number, device in enumerate(self.devices):
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed((number << 32) + self.config.seed)

    def restore_random(self, saved: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None) -> None:
        """Go on drawing where a run on as many GPUs left off."""
        if self.device.type == "cuda" and saved is not None and len(saved) == len(self.devices):
            for state, device in zip(saved, self.devices, strict=True):
                torch.cuda.set_rng_state(torch.from_numpy(state), device)

    def scatter(self, batch: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], ...]:
        """A batch as DataParallel splits it: each device's part."""
        if len(self.devices) == 1:
            return (batch,)
        parts: tuple[tuple[Tensor, ...], ...] = self.parallel.scatter(batch, {}, self.parallel.device_ids)[0]
        return parts

    def report_sharding(self, *batch: Tensor) -> None:
        """Tell how the arrays of the step just made lay: the batch over all devices, all else on the first."""
        mesh = {"batch": len(self.devices)}
        for number, part in enumerate(self.scatter(batch)):
            for name, array in zip(("batch", "labels"), part, strict=True):
                report_array(self.report, name, array, number, mesh, ["batch"])
        name, largest = max(self.model.named_parameters(), key=lambda item: item[1].numel())
        report_array(self.report, f"parameter {name}", largest, 0, mesh, [])
        for key, value in self.optimizer.state[largest].items():
            if isinstance(value, Tensor) and value.shape == largest.shape:
                report_array(self.report, f"optimizer {key} of {name}", value, 0, mesh, [])


def mean_per_device(losses: Tensor, devices: int) -> Tensor:
    """Each device's mean over its own examples: DataParallel gives the first of the batch to the first device."""
    return losses.view(devices, -1).mean(1)
