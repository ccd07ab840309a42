"""Gradients of a batch taken in parts, one after the other, so that fewer activations are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from tuiapp.trainers.frameworks.jax.devices import Batch

GradientsOf: TypeAlias = Callable[[Any, Batch, int | Array], tuple[Any, Array, Any]]
"""From what one part leaves to the next, its images and labels, and its number from 0: the gradients of its mean loss,
the losses of its examples, and what it leaves.
"""


def accumulate(
    gradients_of: GradientsOf, left: Any, batch: Batch, parts: int, devices: int = 1
) -> tuple[Any, Array, Any]:
    """The mean of the gradients of a batch's `parts`, the loss of each example, float32 [batch], and what is left.

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
