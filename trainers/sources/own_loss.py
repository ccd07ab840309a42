"""A loss and metrics of the user's own: what the file of `model = "py:FILE:NAME"` defines beside the model.

    def loss(outputs, targets): ...

    metrics = {"margin": margin}

Each function gets what the model returns for a batch, float32, and its labels, as the framework's arrays, and gives one
value for each example, [N], or for each label, in the labels' shape: no mean. So a mean over the test set is right
however that is cut into batches, and split over devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from tuiapp.trainers.config.run_config import RunConfig, beside_own_loss, best_by, figure_of
from tuiapp.trainers.config.user_code import PY, UserCodeError, parse
from tuiapp.trainers.sources.user_code import load

LOSS, METRICS = "loss", "metrics"
"""What the file calls them."""

CROSS_ENTROPY = "cross_entropy"
"""The figure of an evaluation that the loss would be, if the user had none."""

TAKEN = (LOSS, "accuracy", "perplexity", CROSS_ENTROPY, "examples", "seconds")
"""Names of figures that evaluations have already."""

_NAME = re.compile(r"\w[\w.-]{0,59}", re.ASCII)

Score: TypeAlias = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Own:
    """What the file brings; hashable, as part of a compiled step must be."""

    file: str = ""
    loss: Score | None = None
    metrics: tuple[tuple[str, Score], ...] = ()

    @property
    def figures(self) -> tuple[str, ...]:
        """What an evaluation sums up beside the loss, in its order."""
        return (*((CROSS_ENTROPY,) if self.loss else ()), *(name for name, _ in self.metrics))

    def check_shape(self, name: str, found: object, labels: tuple[int, ...]) -> None:
        """Raises UserCodeError unless what a function gave has a value for each example, or label."""
        shape = getattr(found, "shape", None)
        if shape is None or tuple(shape) not in (labels, labels[:1]):
            description = type(found).__name__ if shape is None else f"an array {list(shape)}"
            wanted = " or ".join(str(list(lengths)) for lengths in dict.fromkeys((labels[:1], labels)))
            raise UserCodeError(
                f"{name} of {self.file} gave {description} for {labels[0]} examples; it must give a value for each, "
                f"{wanted}, and not their mean."
            )

    def check(
        self, shape: tuple[int, ...], classes: int, call: Callable[[Score, Any, Any], tuple[object, Any]]
    ) -> None:
        """Tries each function on made-up outputs, so that an error is told at the start.

        `call` gives what a function returns for outputs, float32 [2, …, classes], and labels, int64 [2, …], and that as
        a NumPy array. Raises UserCodeError for a wrong shape, or values that are not finite, and what the user's code
        raises.
        """
        sizes = (2, *shape) if len(shape) == 1 else (2,)
        outputs = np.random.default_rng(0).normal(size=(*sizes, classes)).astype(np.float32)
        labels = np.arange(prod(sizes)).reshape(sizes) % classes
        functions = [*([(LOSS, self.loss)] if self.loss else []), *self.metrics]
        for name, function in functions:
            result, values = call(function, outputs, labels)
            self.check_shape(name, result, sizes)
            if not (finite := np.isfinite(values)).all():
                raise UserCodeError(
                    f"{name} of {self.file} gave {float(values[~finite][0])} for outputs between "
                    f"{outputs.min():.1f} and {outputs.max():.1f}; its values must be finite."
                )


NOTHING = Own()


def own_of(model: str) -> Own:
    """Returns what a model's file brings; raises UserCodeError if that is no function, and what the file raises.

    A module of that name, as of `from keras import metrics`, is none of it.
    """
    if not model.startswith(PY):
        return NOTHING
    file = parse(model).file
    module = load(file)
    loss, metrics = (
        None if isinstance(value := getattr(module, name, None), ModuleType) else value for name in (LOSS, METRICS)
    )
    if loss is not None and not callable(loss):
        raise UserCodeError(f"loss in {file} is a {type(loss).__name__}; it must be a function of outputs and targets.")
    if metrics is not None and not isinstance(metrics, Mapping):
        message = 'it must be a dict of functions of outputs and targets, such as {"margin": margin}'
        raise UserCodeError(f"metrics in {file} is a {type(metrics).__name__}; {message}.")
    for name, function in (metrics or {}).items():
        _check_metric(f"metrics in {file} has {name!r}", name, function)
    return Own(str(file), loss, tuple((metrics or {}).items()))


def fitting(config: RunConfig) -> Own:
    """Returns what a configuration's model brings; raises UserCodeError if other keys do not go with it."""
    own, (name, _) = own_of(config.model), figure_of(best_by(config))
    if name not in (LOSS, "accuracy", *own.figures):
        names = ", ".join(own.figures) or "none"
        raise UserCodeError(f"best is {config.best}, but {own.file} has no metric {name}; it has {names}.")
    if own.loss:
        for key, fault in beside_own_loss(config, own.file).items():
            raise UserCodeError(f"{key} {fault}")
    return own


def refuse(config: RunConfig) -> None:
    """Raises UserCodeError if the model's file brings any; for a backend that takes none."""
    own = fitting(config)
    if own.figures:
        what = LOSS if own.loss else METRICS
        raise UserCodeError(f"{config.backend} takes no {what} of your own: use another backend, or rename it.")


def _check_metric(where: str, name: object, function: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in TAKEN:
        taken = ", ".join(TAKEN)
        raise UserCodeError(f"{where}; a name has letters, digits and _ . -, at most 60, and is none of {taken}.")
    if not callable(function):
        raise UserCodeError(f"{where}: a {type(function).__name__}; it must be a function of outputs and targets.")
