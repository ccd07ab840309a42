"""An exponential moving average of the weights, which is what is evaluated, saved as the model and exported."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tuiapp.trainers.config.run_config import RunConfig


def first_average(config: RunConfig, weights: Any) -> Any:
    """The average before the first step, with arrays of its own; an empty list where `ema` is off.

    In float32 of weights of bfloat16, too, whose own type would round most of its updates away.
    """

    def copy(one: Array) -> Array:
        return jnp.array(one, jnp.promote_types(one.dtype, jnp.float32))

    return jax.tree.map(copy, weights) if config.ema else []


def next_average(config: RunConfig, average: Any, weights: Any, step: int | Array) -> Any:
    """The average with the weights after a step, counted from 1, taken in; see `RunConfig.ema`."""
    if not config.ema:
        return average
    decay = jnp.minimum(config.ema, (1 + step) / (10 + step))
    return jax.tree.map(lambda kept, present: kept + (1 - decay) * (present - kept), average, weights)
