"""Scales the loss in float16, whose gradients would otherwise be too small for it; as PyTorch's GradScaler does.

Flax has a DynamicScale, but it takes a batch as a whole, and Keras does without Flax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.rank.checkpoints import LOSS_SCALE, Saved

FIRST = 2.0**16
GROWS_AFTER = 2000


class LossScale(NamedTuple):
    scale: Array
    """float32 []"""
    good_steps: Array
    """Steps since it last changed, int32 []."""
    skipped: Array
    """Steps that overflowed, of the whole run; int32 []."""


def first_loss_scale(config: RunConfig) -> LossScale | None:
    """Returns the scale before the first step; None with another precision than float16."""
    if config.precision != "float16":
        return None
    return LossScale(jnp.float32(FIRST), jnp.int32(0), jnp.int32(0))


def to_save(by: LossScale) -> dict[str, npt.NDArray[Any]]:
    """What a checkpoint's state has of it."""
    return {f"{LOSS_SCALE}{name}": np.array(one) for name, one in by._asdict().items()}


def restored(by: LossScale | None, saved: Saved) -> LossScale | None:
    """Returns a checkpoint's scale; the present one if the run was not in float16, or is not any more."""
    kept = saved.part(LOSS_SCALE)
    return by if by is None or not kept else LossScale(**{name: jnp.array(one) for name, one in kept.items()})


def scaled(loss: Array, by: LossScale | None) -> Array:
    """A loss, float32 [], of which to take the gradients."""
    return loss if by is None else loss * by.scale


def unscaled(gradients: Any, by: LossScale | None) -> Any:
    """The gradients of a loss that was scaled, as those of the loss itself."""
    return gradients if by is None else jax.tree.map(lambda one: one / by.scale, gradients)


def skip_overflow(by: LossScale, gradients: Any, new: Any, old: Any) -> tuple[Any, LossScale]:
    """The `new` arrays, or where gradients are not finite the `old` ones; and the scale of the next step.

    It is halved after an overflow, and doubled after 2,000 steps without one.
    """
    finite = jnp.stack([jnp.isfinite(one).all() for one in jax.tree.leaves(gradients)]).all()
    kept = jax.tree.map(lambda one, other: jnp.where(finite, one, other), new, old)
    good_steps = by.good_steps + 1
    grows = good_steps == GROWS_AFTER
    return kept, LossScale(
        scale=jnp.where(finite, jnp.where(grows, by.scale * 2, by.scale), by.scale / 2),
        good_steps=jnp.where(finite & ~grows, good_steps, 0),
        skipped=by.skipped + ~finite,
    )


def read(by: LossScale | None) -> tuple[float, int]:
    """The scale, and the number of steps skipped; of replicas along a leading axis, which have the same, the first."""
    assert by is not None
    scale, _, skipped = (one.addressable_data(0).reshape(-1)[0] for one in by)
    return float(scale), int(skipped)
