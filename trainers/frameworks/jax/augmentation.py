"""A step's batch, augmented within its compiled function: see `tuiapp.trainers.sources.augmentation`."""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from tuiapp.trainers.frameworks.jax.devices import Batch, as_batch, of_step
from tuiapp.trainers.sources.augmentation import PAD

Order: TypeAlias = Array | dict[str, Array] | None
"""See `devices.TrainingBatch`."""


def take(x: Array, y: Array, order: Order, done: int | Array, classes: int) -> Batch:
    """The batch of the step after `done`: images, float32, or tokens, int32, and labels.

    `x`, `y` and `order` are of a `TrainingBatch`. Labels are int32 [batch, …], or of mixtures the `classes`' shares,
    float32 [batch, classes].
    """
    drawn = order if isinstance(order, dict) else {} if order is None else {"examples": order}
    if "examples" in drawn:
        drawn = {name: of_step(values, done) for name, values in drawn.items()}
        x, y = x[drawn["examples"]], y[drawn["examples"]]
    if "flip" in drawn:
        x = change(x, drawn)
    x, y = as_batch(x, y)
    return mix(x, y, drawn["weight"], classes) if "weight" in drawn else (x, y)


def change(x: Array, drawn: dict[str, Array]) -> Array:
    """Cropped and flipped images: of [N, H, W, C], as they are stored, to the same.

    By one gather for each image, which needs no other device's where the batch is split over them.
    """
    height, width = x.shape[1:3]
    rows, columns = jnp.arange(height)[None], jnp.arange(width)
    columns = jnp.where(drawn["flip"][:, None], columns[::-1], columns)
    if "top" in drawn:
        rows, columns = (at + drawn[begin][:, None] - PAD for at, begin in ((rows, "top"), (columns, "left")))
    rows = jnp.broadcast_to(rows, (len(x), height))
    found = jax.vmap(lambda image, rows, columns: image[rows.clip(0, height - 1)[:, None], columns.clip(0, width - 1)])
    inside = [(at >= 0) & (at < size) for at, size in ((rows, height), (columns, width))]
    return jnp.where((inside[0][:, :, None] & inside[1][:, None])[..., None], found(x, rows, columns), 0)


def mix(x: Array, y: Array, weight: Array, classes: int) -> Batch:
    """Mixtures of images, float32 [N, 2, …], and of labels, int32 [N, 2]: float32 [N, …] and [N, classes]."""
    both = jax.nn.one_hot(y, classes)
    by_image = weight.reshape(-1, *[1] * (x.ndim - 2))
    return (
        by_image * x[:, 0] + (1 - by_image) * x[:, 1],
        weight[:, None] * both[:, 0] + (1 - weight[:, None]) * both[:, 1],
    )
