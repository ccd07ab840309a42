"""MXNet's Gluon as the book writes it: a DataLoader, `split_and_load`, one Trainer, no telemetry.

Source: https://d2l.ai/chapter_computational-performance/multiple-gpus-concise.html
"""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.utils import split_and_load

from tests.bench.bare.common import Race
from tuiapp.trainers.frameworks.mxnet import models as mxnet_models


def main() -> None:
    race = Race.from_command_line()
    contexts = [mx.gpu(number) if race.platform == "cuda" else mx.cpu(number) for number in range(race.devices)]
    images, labels = race.load()
    dataset = gluon.data.ArrayDataset(images.transpose(0, 3, 1, 2).copy(), labels.astype(np.int32))
    loader = gluon.data.DataLoader(dataset, race.global_batch_size, shuffle=True, last_batch="discard")
    shape = (images.shape[1], images.shape[2], images.shape[3])
    mx.random.seed(0)
    model = mxnet_models.build(race.model, shape, 10)
    model.initialize(ctx=contexts)
    trainer = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 1e-3})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(race.epochs):
        race.begin_epoch()
        for x, y in loader:
            parts = zip(split_and_load(x, contexts), split_and_load(y, contexts), strict=True)
            with autograd.record():
                losses = [loss_of(model(images_part), labels_part) for images_part, labels_part in parts]
            for loss in losses:
                loss.backward()
            trainer.step(race.global_batch_size)
            if not race.first_step:
                mx.npx.waitall()
                race.step_done()
        mx.npx.waitall()
        race.end_epoch(epoch)
    race.print_result(len(images))


if __name__ == "__main__":
    main()
