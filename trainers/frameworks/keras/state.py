"""The training state with Keras, as the variables of a model and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy.typing as npt

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.frameworks.keras import models as keras_models
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.reporter import Reporter

Variables: TypeAlias = dict[str, Any]


def create_model(plan: Plan) -> keras.Model:
    """The model before the first step; the same seed gives the same weights on any number of devices."""
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
    found = initial_weights(plan, report, shapes, parameters, frozen)
    assign({name: present[name] for name in found}, found)


def weights(model: keras.Model) -> Variables:
    """Weights and running statistics, by their paths: "fc1/kernel"."""
    return {variable.path: variable for variable in model.weights}


def others(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Variables:
    """All else: "optimizer.fc1_kernel_momentum" and "random.0", the state of the first layer with random numbers."""
    kept = {f"optimizer.{variable.name}": variable for variable in optimizer.variables}
    # Their own names count all that were made in this process.
    seeds = [variable for variable in model.non_trainable_variables if variable.name == "seed_generator_state"]
    return kept | {f"random.{number}": variable for number, variable in enumerate(seeds)}


def assign(variables: Variables, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Sets variables from arrays of their names; raises ValueError if one is missing, or has another shape."""
    for name, variable in variables.items():
        array = arrays.get(name)
        if array is None or array.shape != tuple(variable.shape):
            found = "missing" if array is None else f"of shape {array.shape}, not {tuple(variable.shape)}"
            raise ValueError(f"the checkpoint does not fit: {name} is {found}")
        variable.assign(array)
