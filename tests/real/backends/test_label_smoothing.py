"""Label smoothing trains on what torch's own has for a loss, and leaves evaluations alone."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from tests.kit.close import assert_close, rounding
from tests.kit.recorder import ONE_PROCESS, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.backends import keras_jax
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax import state as flax_state
from tuiapp.trainers.frameworks.mxnet.augmentation import smooth
from tuiapp.trainers.frameworks.torch.losses import cross_entropy

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", devices=1, optimizer="sgd", learning_rate=1e-30, momentum=0.0, max_steps=2,
    checkpoint_every=0,
)  # fmt: skip
"""Its weights never change."""


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_losses_are_those_of_torch(smoothing: float) -> None:
    random = np.random.default_rng(0)
    logits: Any = random.normal(size=(6, 5, 7)).astype(np.float32)
    labels: Any = random.integers(0, 7, (6, 5))
    others: Any = random.integers(0, 7, (6, 5))
    weight, shares_of = np.float32(0.3), np.eye(7, dtype=np.float32)

    def by_torch(y: Any) -> Any:
        flat = torch.from_numpy(logits).flatten(0, 1)
        return F.cross_entropy(flat, torch.from_numpy(y).flatten(), reduction="none", label_smoothing=smoothing).numpy()

    wanted = by_torch(labels)
    mixed = weight * wanted + (1 - weight) * by_torch(others)
    flat, y = logits.reshape(30, 7), labels.ravel()
    shares = weight * shares_of[y] + (1 - weight) * shares_of[others.ravel()]
    tensors = [torch.from_numpy(array) for array in (logits, labels, flat, y, shares)]
    arrays = [jnp.asarray(array) for array in (logits, labels, flat, y, shares)]
    for found, exact in (
        (cross_entropy(tensors[0], tensors[1], "none", smoothing), wanted),
        (cross_entropy(tensors[2], tensors[4], "none", smoothing), mixed),
        (flax_state.cross_entropy(arrays[0], arrays[1], smoothing).ravel(), wanted),
        (flax_state.cross_entropy(arrays[2], arrays[4], smoothing), mixed),
        (keras_jax.cross_entropy(arrays[2], arrays[3], smoothing), wanted),
        (keras_jax.cross_entropy(arrays[2], arrays[4], smoothing), mixed),
        # MXNet's loss takes shares that are smoothed before.
        (F.cross_entropy(tensors[2], torch.from_numpy(smooth(y, 7, smoothing)), reduction="none"), wanted),
    ):
        # A sum of seven exponentials, a logarithm, a sum of seven products, a mixture; none above 8.
        assert_close(found, exact, rounding(20, size=8))


@pytest.mark.parametrize("backend", mostly_by_hand([*ONE_PROCESS, "torch-dp"], "jax-sharding", "torch-dp"))
def test_evaluations_have_the_plain_loss(backend: str) -> None:
    plain, smoothed = (
        train(replace(CONFIG, backend=backend, label_smoothing=smoothing), shelf=Shelf()) for smoothing in (0.0, 0.4)
    )
    assert smoothed.evaluations == plain.evaluations
    assert smoothed.losses()[0] != pytest.approx(plain.losses()[0], abs=1e-4)


@pytest.mark.parametrize("backend", mostly_by_hand(["torch-dp", "jax-sharding", "jax-pmap", "keras-jax"], "torch-dp"))
def test_a_text_is_trained_on_with_smoothed_labels(backend: str) -> None:
    text = replace(CONFIG, backend=backend, model="gpt-small", dataset="shakespeare", context=8, global_batch_size=8)
    found = {smoothing: train(replace(text, label_smoothing=smoothing)).losses()[0] for smoothing in (0.0, 0.5)}
    # The initial logits are nearly alike: each label's loss is that of 256.
    assert np.mean(found[0.5]) == pytest.approx(np.log(256), abs=0.1)
    assert np.mean(found[0.5]) != np.mean(found[0.0])
