"""What holds of the Keras models on PyTorch: run by `test_keras_models` in a process of its own."""

from __future__ import annotations

import numpy as np
import torch

from tests.real.frameworks.test_parity import test_evaluation, test_training
from tuiapp.trainers.frameworks.keras import models as keras_models

__all__ = ["test_evaluation", "test_training"]


def test_keras_dropout_draws_from_pytorchs_generator() -> None:
    """So that ranks which seed it differently drop differently, and a checkpoint of its state is enough."""
    model = keras_models.build("convnet", (28, 28, 1), 10)
    x = np.random.default_rng(0).random((4, 28, 28, 1), np.float32)
    drawn = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        drawn.append(model(x, training=True).detach().numpy())
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).any()
