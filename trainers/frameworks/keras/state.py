"""The training state with Keras, as the variables of a model and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy.typing as npt
from keras import ops

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.frameworks.keras import models as keras_models
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.reporter import Reporter

Variables: TypeAlias = dict[str, Any]


def create_model(plan: Plan) -> keras.Model:
    """Returns the model before the first step; the same seed gives the same weights on any number of devices."""
    config, data = plan.config, plan.data
    keras.utils.set_random_seed(config.seed)
    return keras_models.build(
        config.model, data.input_shape, data.classes, config.precision, normalization=plan.normalization
    )


def save(model: keras.Model, plan: Plan, path: Path) -> None:
    """Saves the trained model to a new .keras file so that it takes images as in the data set.

    Training scales uint8 images to 0–1 before the model: the saved model gets a layer that does so.
    """
    config, data = plan.config, plan.data
    if data.value_bytes == 1 and config.model.startswith(PY):
        model = keras_models.rescaled(model, data.input_shape)
    elif data.value_bytes == 1:
        trained = model.get_weights()
        parts = config.model, data.input_shape, data.classes, config.precision
        model = keras_models.build(*parts, rescaling=True, normalization=plan.normalization)
        model.set_weights(trained)
    model.save(path)


def freeze(model: keras.Model, patterns: str) -> frozenset[str]:
    """Makes the weights untrainable that the key `freeze` names, and returns their paths; raises ConfigError.

    BatchNorm's running statistics go on: to set a layer's own `trainable` would end that.
    """
    trained = {variable.path: variable for variable in model.trainable_variables}
    frozen = frozen_names(patterns, trained)
    for path in frozen:
        trained[path].trainable = False
    return frozen


def begin(model: keras.Model, frozen: frozenset[str], plan: Plan, report: Reporter) -> None:
    """Gives a new run's model its initial weights; see `tuiapp.trainers.rank.initial`. Raises ConfigError."""
    present = weights(model)
    shapes = {name: tuple(variable.shape) for name, variable in present.items()}
    parameters = [*frozen, *(variable.path for variable in model.trainable_variables)]
    initial = initial_weights(plan, report, shapes, parameters, frozen)
    assign({name: present[name] for name in initial}, initial)


def weights(model: keras.Model) -> Variables:
    """Returns the weights and running statistics, by their paths: "fc1/kernel"."""
    return {variable.path: variable for variable in model.weights}


def others(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Variables:
    """Returns the optimizer's variables and the random state of layers, by name.

    The names are "optimizer.fc1_kernel_momentum", and "random.0" of the first layer with random numbers.
    """
    kept = {f"optimizer.{variable.name}": variable for variable in optimizer.variables}
    # Their own names count all that were made in this process.
    seeds = [variable for variable in model.non_trainable_variables if variable.name == "seed_generator_state"]
    return kept | {f"random.{number}": variable for number, variable in enumerate(seeds)}


def assign(variables: Variables, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Sets variables from arrays of their names; raises ValueError if one is missing, or has another shape."""
    for name, variable in variables.items():
        array = arrays.get(name)
        if array is None or array.shape != tuple(variable.shape):
            problem = "missing" if array is None else f"of shape {array.shape}, not {tuple(variable.shape)}"
            raise ValueError(f"the checkpoint does not fit: {name} is {problem}")
        variable.assign(array)


def build_optimizer(config: RunConfig) -> keras.optimizers.Optimizer:
    """Returns the optimizer; its learning rate is one of its variables.

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
