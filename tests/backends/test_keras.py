"""Keras on JAX, on this process's virtual devices: checkpoints, the exported file, the same steps as PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import keras
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.backends.recorder import Shelf, train
from tests.models.weights import into_keras
from trainers.backends.keras_jax import Training
from trainers.contract.config import RunConfig
from trainers.data import datasets
from trainers.models import torch_models
from trainers.schedules import learning_rate
from trainers.torch_ranks import build_optimizer, update

CONVNET = RunConfig(backend="keras-jax", model="convnet", platform="cpu", devices=2, max_steps=15)


class Exports(Shelf):
    """Keeps the exported model, as plain Keras loads it."""

    model: keras.Model

    def export_file(self, name: str, write: Callable[[Path], object]) -> None:
        def load(path: Path) -> None:
            write(path)
            self.model = keras.saving.load_model(path)

        super().export_file(name, load)


def test_what_is_saved_and_what_is_exported() -> None:
    shelf = Exports()
    told = train(CONVNET, shelf=shelf)
    saved = shelf.saved[15]
    assert {"conv1/kernel", "bn1/moving_mean", "fc2/bias"} <= set(saved.model)
    assert {"optimizer.iteration", "optimizer.fc2_bias_momentum", "random.0"} <= set(saved.state)
    # Dropout has drawn once a step.
    assert saved.state["random.0"].tolist()[1] == 15
    # What was exported is what was evaluated last.
    for variable in shelf.model.weights:
        np.testing.assert_array_equal(np.asarray(variable.value), saved.model[variable.path])
    arrays = datasets.load("digits")
    logits = np.asarray(shelf.model(arrays.x_test.astype(np.float32) / 255))
    assert (logits.argmax(1) == arrays.y_test).mean() == pytest.approx(told.evaluations[-1].accuracy)


def test_twenty_steps_as_in_pytorch() -> None:
    """Loss, gradients, BatchNorm, clipping, decay and update together; other optimizers' updates are tested alone."""
    config = RunConfig(
        model="net",
        devices=1,
        optimizer="sgd",
        learning_rate=0.01,
        nesterov=True,
        weight_decay=1e-3,
        gradient_clip=2.0,
        schedule="linear",
    )
    torch.manual_seed(0)
    module = torch_models.build("net", (28, 28, 1), 10)
    torch_optimizer = build_optimizer(config, module.parameters())
    training = Training(config)
    into_keras(module, training.model, (5, 5, 64))
    state, step_fn = training.state(), jax.jit(training.step)
    arrays = datasets.load("digits")
    curves: tuple[list[float], list[float]] = [], []
    for step, rows in enumerate(datasets.epoch_order(len(arrays.x_train), 48, 0, 1)[:20], start=1):
        x, y, rate = arrays.x_train[rows].astype(np.float32) / 255, arrays.y_train[rows], learning_rate(config, step)
        state, losses = step_fn(state, x, y, rate)
        curves[0].append(float(losses[0]))
        loss = F.cross_entropy(module(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())), torch.from_numpy(y))
        torch_optimizer.zero_grad()
        loss.backward()
        update(config, torch_optimizer, float(rate))
        curves[1].append(loss.item())
    largest = max(abs(a - b) for a, b in zip(*curves, strict=True))
    print(f"\nnet: largest difference between Keras and PyTorch over 20 steps: {largest:.1e}")
    assert largest < 1e-4
    assert curves[0][-1] < curves[0][0]
