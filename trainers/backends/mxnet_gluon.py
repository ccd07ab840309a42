"""MXNet's Gluon: one process, which owns all devices and keeps a replica of the model on each.

At each step `split_and_load` gives every context a part of the global batch; MXNet's engine runs the forward and
backward passes of all at the same time; and a Trainer with the key-value store "device" adds up their gradients and
makes the same update on each. Contexts are several GPUs, or of the CPU `mx.cpu(0)`, `mx.cpu(1)`, …, each with threads
of its own. Replaces

    python train.py

MXNet was retired in 2023; its last release, 1.9.1, needs a NumPy older than tuiapp's own: its ranks run in an
interpreter of their own.

BatchNorm normalizes with the statistics of the context's own part. Its running statistics are averaged over the
contexts before each evaluation: training does not read them. Replicas are compared without them.

Source: https://d2l.ai/chapter_computational-performance/multiple-gpus-concise.html
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
import numpy.typing as npt
from mxnet import autograd, gluon
from mxnet.gluon.utils import split_and_load

from tuiapp.trainers.config.normalization import Normalization
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.contract.events import Shard, Sharding
from tuiapp.trainers.frameworks.mxnet import models as mxnet_models
from tuiapp.trainers.frameworks.mxnet.augmentation import change, mix, smooth
from tuiapp.trainers.frameworks.mxnet.state import (
    average_statistics,
    begin,
    build_optimizer,
    clip,
    named_parameters,
    replica_checksums,
    restore,
    saved_optimizer,
    snapshot,
    trained,
)
from tuiapp.trainers.rank.checkpoints import Checkpoints, Saved
from tuiapp.trainers.rank.evaluation import Sums, batch_size, sum_up
from tuiapp.trainers.rank.loop import Compare, Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources import augmentation, datasets
from tuiapp.trainers.sources.arrays import StoredImages, prefetch
from tuiapp.trainers.sources.own_loss import refuse

Batch: TypeAlias = tuple[datasets.Rows, npt.NDArray[Any], npt.NDArray[Any]]
"""On the host: the examples' numbers, int64 [global batch], their images as in the file, and labels, int32, or the
classes' shares, float32 [global batch, classes]; augmented.
"""


def train(plan: Plan, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Trains on all devices, from the first step, or the one after a checkpoint, to the last."""
    Trainer(plan, pick_contexts(plan.config, report), report, checkpoints).train()


def pick_contexts(config: RunConfig, report: Reporter) -> list[mx.Context]:
    """Returns this run's contexts, all owned by this process."""
    on_gpus = config.platform == "cuda"
    if on_gpus and (available := mx.context.num_gpus()) < config.devices:
        raise RuntimeError(
            f"MXNet sees {available} GPUs of the {config.devices} that the run wants: is it a CUDA build?"
        )
    contexts = [mx.gpu(number) if on_gpus else mx.cpu(number) for number in range(config.devices)]
    for number, context in enumerate(contexts):
        report.rank_started(str(context), uuid=config.device_ids[number] if on_gpus else "", number=number)
    # Each loss is an array of its context.
    report.convert = lambda steps: [[float(loss.asnumpy()) for loss in losses] for losses in steps]
    return contexts


class Trainer:
    def __init__(self, plan: Plan, contexts: list[mx.Context], report: Reporter, checkpoints: Checkpoints) -> None:
        config, data = plan.config, plan.data
        self.plan, self.config, self.contexts = plan, config, contexts
        self.report, self.checkpoints = report, checkpoints
        refuse(config)
        self.arrays = datasets.open_planned(plan)
        mx.random.seed(config.seed)
        self.model = mxnet_models.create(config.model, data.input_shape, data.classes, contexts)
        self.parameters = named_parameters(self.model)
        begin(plan, self.parameters, report, checkpoints)
        self.trained = trained(self.parameters)
        self.has_shares = config.augment == "mixup" or config.label_smoothing > 0
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=not self.has_shares)
        self.draws = draws(self.model) or config.model.startswith(PY)
        if resumed := checkpoints.resumed:
            restore(self.parameters, resumed)
            self.optimizer = build_optimizer(config, resumed.step, saved_optimizer(self.trained, resumed))
        else:
            self.optimizer = build_optimizer(config)
        # Given the running statistics as well, it would spread the first context's over all at its first step. Each
        # context updates its own replica: an update in the key-value store leaves no gradients to be clipped.
        parameters = list(self.trained.values())
        self.trainer = gluon.Trainer(parameters, self.optimizer, kvstore="device", update_on_kvstore=False)

    def train(self) -> None:
        for work in training(self.plan, self.report, self.checkpoints, place=self.place, wait=wait):
            match work:
                case Step():
                    x, y = self.load(work.rows)
                    work.done(*self.step(x, y, work.number, float(work.rate)))
                    if work.is_first:
                        self.report_sharding(x, y, work.rows[0])
                case Compare():
                    work.done(replica_checksums(self.parameters))
                case Evaluate():
                    work.done(self.evaluate())
                case Save():
                    work.done(*snapshot(self.parameters, self.optimizer))
                case Export():
                    self.export()

    def step(self, x: list[Any], y: list[Any], number: int, rate: float) -> tuple[list[Any], list[Any] | None]:
        """Returns each context's mean loss before the update, float32 [], and the norm of clipped gradients, [1]."""
        self.seed_dropout(number)
        with autograd.record():
            losses = [self.loss(self.model(part), labels) for part, labels in zip(x, y, strict=True)]
        autograd.backward(losses)
        self.trainer.allreduce_grads()
        largest = self.config.gradient_clip * self.config.global_batch_size
        norms = [clip(self.trained.values(), context, largest) for context in self.contexts] if largest else []
        self.trainer.set_learning_rate(rate)
        self.trainer.update(self.config.global_batch_size)
        norm = [norms[0] / self.config.global_batch_size] if norms else None
        return [loss.mean() for loss in losses], norm

    def seed_dropout(self, step: int) -> None:
        """Makes Dropout draw differently at every step and on every context; the generators cannot be read out."""
        if self.draws:
            for number, context in enumerate(self.contexts):
                mixed = np.random.SeedSequence((self.config.seed, step, number)).generate_state(1)
                mx.random.seed(int(mixed[0]), context)

    def place(self, order: augmentation.Order) -> Iterable[Batch]:
        """Returns batches on the host; stored images are read ahead."""
        shape, classes = self.arrays.x_train.shape[1:], self.plan.data.classes

        def read(order: augmentation.Order) -> Batch:
            rows, drawn = augmentation.examples(order), augmentation.draws(order)
            images = self.arrays.x_train[rows.ravel()].reshape(*rows.shape, *shape)
            labels: npt.NDArray[Any] = self.arrays.y_train[rows].astype(np.int32)
            if self.has_shares:
                labels = smooth(labels, classes, self.config.label_smoothing)
            if "flip" in drawn:
                images = change(images, drawn)
            if "weight" in drawn:
                rows, images, labels = rows[:, 0], *mix(images, labels, drawn["weight"])
            return rows, images, labels

        return prefetch(order, read) if isinstance(self.arrays.x_train, StoredImages) else map(read, order)

    def load(self, batch: Batch) -> tuple[list[Any], list[Any]]:
        """Returns each context's part: images, float32 [local batch, C, H, W], and labels, as the loss takes them."""
        _, images, labels = batch
        parts = [to_floats(part, self.plan.normalization) for part in self.split(images)]
        return parts, self.split(labels)

    def split(self, array: npt.NDArray[Any]) -> list[Any]:
        """Returns part after part of an array on as many contexts as it has rows for; the first ones have one more."""
        on_host = mx.np.array(array, dtype=array.dtype, ctx=mx.cpu())
        parts: list[Any] = split_and_load(on_host, self.contexts[: len(array)], even_split=False)
        return parts

    def evaluate(self) -> Sums:
        """Returns sums over the test set, which all contexts share, each example exactly once."""
        average_statistics(self.parameters)
        logits = []
        at_once = batch_size(self.plan, self.config.devices)
        for start in range(0, len(self.arrays.y_test), at_once):
            parts = self.split(self.arrays.x_test[start : start + at_once])
            outputs = [self.model(to_floats(part, self.plan.normalization)) for part in parts]
            logits += [part.asnumpy() for part in outputs]
        return sum_up(np.concatenate(logits), self.arrays.y_test)

    def export(self) -> None:
        average_statistics(self.parameters)
        if best := self.checkpoints.best_model():
            restore(self.parameters, Saved(0, best, {}))
        self.checkpoints.export_file("model.params", lambda path: self.model.save_parameters(str(path)))

    def report_sharding(self, x: list[Any], y: list[Any], rows: datasets.Rows) -> None:
        """Reports how the arrays of the last step were laid out: batch and labels, a parameter, its optimizer state."""
        places = [np.flatnonzero(np.isin(rows, part.asnumpy())) for part in self.split(rows)]
        self.report_array("batch", x, places)
        self.report_array("labels", y, places)
        index, (name, largest) = max(enumerate(self.trained.items()), key=lambda item: prod(item[1][1].shape))
        self.report_array(f"parameter {name}", largest.list_data())
        for slot in self.optimizer.slots:
            self.report_array(f"optimizer {slot} of {name}", [replica[slot] for replica in self.optimizer.kept[index]])

    def report_array(self, name: str, parts: list[Any], places: list[npt.NDArray[np.intp]] | None = None) -> None:
        """Reports an array with one part per context: the rows in `places` of it, or without that a replica."""
        shape: list[int] = list(parts[0].shape)
        spec: list[str | None] = [None] * len(shape)
        indices = [[(0, size) for size in shape] for _ in parts]
        if places:
            for index, rows in zip(indices, places, strict=True):
                index[0] = (int(rows[0]), int(rows[-1]) + 1)
            shape[0], spec[0] = sum(map(len, places)), "batch"
        shards = [
            Shard(rank=number, device=str(part.context), index=index, bytes=part.size * np.dtype(part.dtype).itemsize)
            for number, (part, index) in enumerate(zip(parts, indices, strict=True))
        ]
        mesh, dtype = {"batch": len(self.contexts)}, np.dtype(parts[0].dtype).name
        self.report.send(Sharding(array=name, shape=shape, dtype=dtype, mesh=mesh, spec=spec, shards=shards))


def draws(model: gluon.Block) -> bool:
    """Whether a model has a layer that draws random numbers; seeding takes a millisecond for each context."""
    layers: list[gluon.Block] = []
    model.apply(lambda block: layers.append(block) if isinstance(block, gluon.nn.Dropout) else None)
    return bool(layers)


def to_floats(images: Any, normalization: Normalization | None) -> Any:
    """Maps [N, H, W, C] to float32 [N, C, H, W], uint8 scaled to 0–1, normalized if wanted."""
    scaled = images.astype(np.float32) / 255 if images.dtype == np.uint8 else images
    if normalization is not None:
        both = normalization.mean, normalization.std
        mean, std = (mx.np.array(values, dtype=np.float32, ctx=images.ctx) for values in both)
        scaled = (scaled - mean) / std
    return scaled.transpose(0, 3, 1, 2)


def wait(losses: list[Any]) -> None:
    """Waits until a step's losses are computed; raises what failed in the engine."""
    for loss in losses:
        loss.wait_to_read()
