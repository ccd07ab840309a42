"""What JAX's backends train on: cross entropy, or a loss of the user's own, and the figures of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.rank.checkpoints import LOSS_SCALE, Saved
from tuiapp.trainers.sources.own_loss import LOSS, Own, Score, fitting


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of logits, [batch, classes], and labels, int32 [batch], or of both with an axis of tokens."""

    own: Own
    cross_entropy: Callable[..., Array]
    """The framework's, of each label; with how much labels are smoothed."""

    def each(self, logits: Array, labels: Array, smoothing: float = 0.0) -> Array:
        """The loss of each label, float32 in the labels' shape; of mixed labels, float32 [batch, classes], [batch]."""
        if self.own.loss is None:
            return self.cross_entropy(logits, labels, smoothing)
        return self._values(LOSS, self.own.loss, logits, labels)

    def figures(self, logits: Array, labels: Array) -> list[Array]:
        """What an evaluation reports beside the loss, of each label, by `Own.figures`."""
        found = [self.cross_entropy(logits, labels, 0.0)] if self.own.loss else []
        return found + [self._values(name, function, logits, labels) for name, function in self.own.metrics]

    def _values(self, name: str, function: Score, logits: Array, labels: Array) -> Array:
        """A function's value of each label; one of an example counts for all of its labels."""
        found = function(logits.astype(jnp.float32), labels)
        self.own.check_shape(name, found, labels.shape)
        by_example = found.reshape(len(labels), *[-1 for _ in labels.shape[1:]])
        return jnp.broadcast_to(by_example, labels.shape).astype(jnp.float32)


def losses_of(plan: Plan, cross_entropy: Callable[..., Array]) -> Losses:
    """Raises UserCodeError for functions of the user's own that cannot be used, and what those raise."""
    own = fitting(plan.config)

    def call(function: Score, outputs: Any, labels: Any) -> tuple[object, Any]:
        found = function(jnp.asarray(outputs), jnp.asarray(labels, jnp.int32))
        return found, np.asarray(found) if isinstance(found, jax.Array) else None

    own.check(plan.data.input_shape, plan.data.classes, call)
    return Losses(own, cross_entropy)


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
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients)]).all()
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
