"""Keras' optimizers, with PyTorch's conventions and constants, so that a configuration means the same everywhere.

Keras differs in three ways, each corrected by a subclass that changes the update of one variable: its weight decay is
always decoupled; its SGD multiplies the learning rate into the velocity, so that a velocity keeps the rate of its own
step; its Adam adds ε before the second moment's bias correction, not after.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tuiapp.trainers.config.run_config import RunConfig


def build_optimizer(config: RunConfig) -> keras.optimizers.Optimizer:
    """The optimizer; its learning rate is one of its variables.

    Gradients are clipped first. Weight decay is then added to the gradient (L2), but decoupled in adamw: rate times
    decay times parameter is subtracted besides Adam's step.
    """
    # A user's keras.json may say otherwise; the learning rate's type follows it.
    keras.config.set_floatx("float32")
    options: dict[str, Any] = {"learning_rate": config.learning_rate, "name": "optimizer"}
    if config.gradient_clip:
        options["global_clipnorm"] = config.gradient_clip
    decay = config.weight_decay
    match config.optimizer:
        case "sgd":
            return SGD(decay, momentum=config.momentum, nesterov=config.nesterov, **options)
        case "adam":
            return Adam(decay, epsilon=1e-8, **options)
        case "adamw":
            return Adam(0, weight_decay=decay, epsilon=1e-8, **options)
        case "adadelta":
            return Adadelta(decay, rho=0.9, epsilon=1e-6, **options)
    raise ValueError(config.optimizer)


class L2:
    """Mixin that adds `l2` times each parameter to its gradient."""

    def __init__(self, l2: float, **options: object) -> None:
        super().__init__(**options)
        self.l2 = l2

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        if self.l2:
            gradient = ops.add(gradient, ops.multiply(variable, self.l2))
        self.update_variable(gradient, variable, learning_rate)

    def update_variable(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]


class SGD(L2, keras.optimizers.SGD):
    """With PyTorch's velocity, a running sum of gradients without the rate."""

    def update_variable(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Subtracts rate times velocity (with `nesterov`, the velocity after the next gradient)."""
        if not self.momentum:
            super().update_variable(gradient, variable, learning_rate)
            return
        kept = self.momentums[self._get_variable_index(variable)]
        velocity = ops.add(ops.multiply(kept, self.momentum), gradient)
        self.assign(kept, velocity)
        step = ops.add(gradient, ops.multiply(velocity, self.momentum)) if self.nesterov else velocity
        self.assign_sub(variable, ops.multiply(step, learning_rate))


class Adam(L2, keras.optimizers.Adam):
    """With Kingma and Ba's ε, not their "ε hat" (section 2 of https://arxiv.org/abs/1412.6980), as PyTorch has it."""

    def update_variable(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Subtracts rate times the mean gradient over the root of the mean squared one, both bias-corrected."""
        # Of weights in bfloat16 or float16, whose type rounds β₂ to 1, the corrections are float32, too.
        step = ops.cast(self.iterations + 1, keras.backend.result_type(variable.dtype, "float32"))
        index = self._get_variable_index(variable)
        first, second = self._momentums[index], self._velocities[index]
        self.assign_add(first, ops.multiply(ops.subtract(gradient, first), 1 - self.beta_1))
        self.assign_add(second, ops.multiply(ops.subtract(ops.square(gradient), second), 1 - self.beta_2))
        mean = ops.divide(first, 1 - ops.power(self.beta_1, step))
        root = ops.sqrt(ops.divide(second, 1 - ops.power(self.beta_2, step)))
        self.assign_sub(variable, ops.multiply(learning_rate, ops.divide(mean, ops.add(root, self.epsilon))))


class Adadelta(L2, keras.optimizers.Adadelta):
    """Keras' own, except for the penalty."""
