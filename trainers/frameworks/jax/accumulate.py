"""A step's batch: drawn by its numbers, augmented, mixed; and its gradients, taken in parts one after the other.

In parts fewer activations are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from tuiapp.trainers.frameworks.jax.devices import Batch, as_batch, of_step
from tuiapp.trainers.sources.augmentation import PAD

GradientsOf: TypeAlias = Callable[[Any, Batch, int | Array], tuple[Any, Array, Any]]
"""From what one part leaves to the next, its images and labels, and its number from 0: the gradients of its mean loss,
the losses of its examples, and what it leaves.
"""


def accumulate(
    gradients_of: GradientsOf, left: Any, batch: Batch, parts: int, devices: int = 1
) -> tuple[Any, Array, Any]:
    """Returns the mean gradients of a batch's `parts`, the loss of each example, float32 [batch], and what is left.

    `left` goes through the parts, as BatchNorm's running statistics do. Of a batch that is split over `devices` each
    part has as many examples of every device.
    """
    if parts == 1:
        return gradients_of(left, batch, 0)

    def split(array: Array) -> Array:
        by_device = array.reshape(devices, parts, -1, *array.shape[1:])
        return by_device.swapaxes(0, 1).reshape(parts, -1, *array.shape[1:])

    def add(carried: tuple[Any, Any], part: tuple[Batch, Array]) -> tuple[tuple[Any, Any], Array]:
        sums, left = carried
        gradients, losses, left = gradients_of(left, *part)
        return (jax.tree.map(jnp.add, sums, gradients), left), losses

    by_part = jax.tree.map(split, batch)
    first = jax.tree.map(lambda array: array[0], by_part)
    zeros = jax.tree.map(
        lambda like: jnp.zeros(like.shape, like.dtype), jax.eval_shape(gradients_of, left, first, 0)[0]
    )
    (sums, left), losses = jax.lax.scan(add, (zeros, left), (by_part, jnp.arange(parts)))
    losses = losses.reshape(parts, devices, -1).swapaxes(0, 1).reshape(-1)
    return jax.tree.map(lambda total: total / parts, sums), losses, left


Order: TypeAlias = Array | dict[str, Array] | None
"""The third part of `devices.TrainingBatch`: example numbers, or what is drawn for them."""


def take(x: Array, y: Array, order: Order, done: int | Array, classes: int) -> Batch:
    """Returns the batch of the step after `done`: images, float32, or tokens, int32, and labels.

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
    """Returns cropped and flipped images: of [N, H, W, C], as they are stored, to the same.

    By one gather for each image, which needs no other device's where the batch is split over them.
    """
    height, width = x.shape[1:3]
    rows, columns = jnp.arange(height)[None], jnp.arange(width)
    columns = jnp.where(drawn["flip"][:, None], columns[::-1], columns)
    if "top" in drawn:
        rows, columns = (at + drawn[begin][:, None] - PAD for at, begin in ((rows, "top"), (columns, "left")))
    rows = jnp.broadcast_to(rows, (len(x), height))
    gather = jax.vmap(lambda image, rows, columns: image[rows.clip(0, height - 1)[:, None], columns.clip(0, width - 1)])
    inside = [(at >= 0) & (at < size) for at, size in ((rows, height), (columns, width))]
    return jnp.where((inside[0][:, :, None] & inside[1][:, None])[..., None], gather(x, rows, columns), 0)


def mix(x: Array, y: Array, weight: Array, classes: int) -> Batch:
    """Returns mixtures of images, float32 [N, 2, …], and of labels, int32 [N, 2]: float32 [N, …] and [N, classes]."""
    both = jax.nn.one_hot(y, classes)
    by_image = weight.reshape(-1, *[1] * (x.ndim - 2))
    return (
        by_image * x[:, 0] + (1 - by_image) * x[:, 1],
        weight[:, None] * both[:, 0] + (1 - weight[:, None]) * both[:, 1],
    )
