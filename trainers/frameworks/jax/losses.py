"""What JAX's backends train on: cross entropy, or a loss of the user's own, and the figures of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tuiapp.trainers.config.plan import Plan
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
