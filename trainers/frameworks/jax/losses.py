"""What JAX's backends optimize: losses, the figures of an evaluation, the average of weights, float16's loss scale."""

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
    """The framework's cross entropy of each label, of logits, labels, and how much labels are smoothed."""

    def each(self, logits: Array, labels: Array, smoothing: float = 0.0) -> Array:
        """Returns each label's loss, float32 in their shape; of mixed labels, float32 [batch, classes], [batch]."""
        if self.own.loss is None:
            return self.cross_entropy(logits, labels, smoothing)
        return self._values(LOSS, self.own.loss, logits, labels)

    def figures(self, logits: Array, labels: Array) -> list[Array]:
        """Returns what an evaluation reports beside the loss, of each label, by `Own.figures`."""
        per_label = [self.cross_entropy(logits, labels, 0.0)] if self.own.loss else []
        return per_label + [self._values(name, function, logits, labels) for name, function in self.own.metrics]

    def _values(self, name: str, function: Score, logits: Array, labels: Array) -> Array:
        """Returns a function's value of each label; one of an example counts for all of its labels."""
        values = function(logits.astype(jnp.float32), labels)
        self.own.check_shape(name, values, labels.shape)
        by_example = values.reshape(len(labels), *[-1 for _ in labels.shape[1:]])
        return jnp.broadcast_to(by_example, labels.shape).astype(jnp.float32)


def losses_of(plan: Plan, cross_entropy: Callable[..., Array]) -> Losses:
    """Returns the losses of a run; raises UserCodeError for functions of the user's own that cannot be used."""
    functions = fitting(plan.config)

    def call(function: Score, outputs: Any, labels: Any) -> tuple[object, Any]:
        result = function(jnp.asarray(outputs), jnp.asarray(labels, jnp.int32))
        return result, np.asarray(result) if isinstance(result, jax.Array) else None

    functions.check(plan.data.input_shape, plan.data.classes, call)
    return Losses(functions, cross_entropy)


def first_average(config: RunConfig, weights: Any) -> Any:
    """Returns the average before the first step, with arrays of its own; an empty list where `ema` is off.

    In float32 of weights of bfloat16, too, whose own type would round most of its updates away.
    """

    def copy(weight: Array) -> Array:
        return jnp.array(weight, jnp.promote_types(weight.dtype, jnp.float32))

    return jax.tree.map(copy, weights) if config.ema else []


def next_average(config: RunConfig, average: Any, weights: Any, step: int | Array) -> Any:
    """Returns the average with the weights after a step, counted from 1, taken in; see `RunConfig.ema`."""
    if not config.ema:
        return average
    decay = jnp.minimum(config.ema, (1 + step) / (10 + step))
    return jax.tree.map(lambda kept, present: kept + (1 - decay) * (present - kept), average, weights)


FIRST = 2.0**16
GROWS_AFTER = 2000


class LossScale(NamedTuple):
    scale: Array
    """The factor of the loss, float32 []."""
    good_steps: Array
    """Steps since the scale last changed, int32 []."""
    skipped: Array
    """Steps of the whole run that overflowed, int32 []."""


def first_loss_scale(config: RunConfig) -> LossScale | None:
    """Returns the scale before the first step; None with another precision than float16."""
    if config.precision != "float16":
        return None
    return LossScale(jnp.float32(FIRST), jnp.int32(0), jnp.int32(0))


def to_save(by: LossScale) -> dict[str, npt.NDArray[Any]]:
    """Returns what a checkpoint's state has of the loss scale."""
    return {f"{LOSS_SCALE}{name}": np.array(array) for name, array in by._asdict().items()}


def restored(by: LossScale | None, saved: Saved) -> LossScale | None:
    """Returns a checkpoint's scale; the present one if the run was not in float16, or is not any more."""
    kept = saved.part(LOSS_SCALE)
    return by if by is None or not kept else LossScale(**{name: jnp.array(array) for name, array in kept.items()})


def scaled(loss: Array, by: LossScale | None) -> Array:
    """Returns a loss, float32 [], of which to take the gradients."""
    return loss if by is None else loss * by.scale


def unscaled(gradients: Any, by: LossScale | None) -> Any:
    """Returns the gradients of a loss that was scaled, as those of the loss itself."""
    return gradients if by is None else jax.tree.map(lambda gradient: gradient / by.scale, gradients)


def skip_overflow(by: LossScale, gradients: Any, new: Any, old: Any) -> tuple[Any, LossScale]:
    """Returns the `new` arrays, or where gradients are not finite the `old` ones; and the scale of the next step.

    It is halved after an overflow, and doubled after 2,000 steps without one.
    """
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients)]).all()
    kept = jax.tree.map(lambda updated, previous: jnp.where(finite, updated, previous), new, old)
    good_steps = by.good_steps + 1
    grows = good_steps == GROWS_AFTER
    return kept, LossScale(
        scale=jnp.where(finite, jnp.where(grows, by.scale * 2, by.scale), by.scale / 2),
        good_steps=jnp.where(finite & ~grows, good_steps, 0),
        skipped=by.skipped + ~finite,
    )


def read(by: LossScale | None) -> tuple[float, int]:
    """Returns the scale, and the number of steps skipped; of replicas, which have the same, the first's."""
    assert by is not None
    scale, _, skipped = (array.addressable_data(0).reshape(-1)[0] for array in by)
    return float(scale), int(skipped)
