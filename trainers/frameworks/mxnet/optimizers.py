"""MXNet's optimizers, with PyTorch's conventions and constants, so that a configuration means the same everywhere.

MXNet differs in three ways, each corrected here: its SGD multiplies the learning rate into the velocity, so that a
velocity keeps the rate of its own step; its Adam adds ε before the second moment's bias correction, not after; its
AdaDelta knows no learning rate. Its AdamW is not among the optimizers a Trainer knows by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Any

import mxnet as mx
import numpy.typing as npt
from mxnet import gluon, nd
from mxnet.gluon.utils import clip_global_norm

from tuiapp.trainers.config.run_config import RunConfig


class Optimizer(mx.optimizer.Optimizer):
    """Base of all: updates one parameter on one context, given the sum of the gradients, and keeps their state.

    `saved` has, by the parameters' numbers, the state after `step`. A Trainer's own files of it are pickled.
    """

    slots: tuple[str, ...] = ()
    """The names of a parameter's arrays."""

    def __init__(self, config: RunConfig, step: int, saved: Mapping[int, Mapping[str, npt.NDArray[Any]]]) -> None:
        super().__init__(learning_rate=config.learning_rate, wd=config.weight_decay, begin_num_update=step)
        self.config, self.saved = config, saved
        self.kept: dict[int, list[dict[str, nd.NDArray]]] = {}
        """A parameter's state on each context."""

    def create_state(self, index: int, weight: nd.NDArray) -> dict[str, nd.NDArray]:
        if index in self.saved:
            made = {name: nd.array(self.saved[index][name], ctx=weight.context) for name in self.slots}
        else:
            made = {name: nd.zeros(weight.shape, ctx=weight.context) for name in self.slots}
        self.kept.setdefault(index, []).append(made)
        return made

    def update(self, index: int, weight: nd.NDArray, grad: nd.NDArray, state: dict[str, nd.NDArray]) -> None:
        self._update_count(index)
        self.change(weight, grad, self._get_lr(index), self._index_update_count[index], **state)

    def penalized(self, weight: nd.NDArray, grad: nd.NDArray) -> nd.NDArray:
        """The averaged gradient with the L2 penalty."""
        grad = grad * self.rescale_grad
        return grad + self.wd * weight if self.wd else grad

    def change(self, weight: nd.NDArray, grad: nd.NDArray, rate: float, step: int, **state: nd.NDArray) -> None:
        raise NotImplementedError


class SGD(Optimizer):
    def change(self, weight: nd.NDArray, grad: nd.NDArray, rate: float, step: int, **state: nd.NDArray) -> None:
        nd.sgd_update(weight, grad, out=weight, lr=rate, wd=self.wd, rescale_grad=self.rescale_grad)


class Momentum(Optimizer):
    """With PyTorch's velocity, a running sum of gradients without the rate."""

    slots = ("velocity",)

    def change(self, weight: nd.NDArray, grad: nd.NDArray, rate: float, step: int, **state: nd.NDArray) -> None:
        """Subtracts rate times velocity (with `nesterov`, the velocity after the next gradient)."""
        gradient, velocity, momentum = self.penalized(weight, grad), state["velocity"], self.config.momentum
        velocity *= momentum
        velocity += gradient
        weight -= rate * (gradient + momentum * velocity if self.config.nesterov else velocity)


class Adam(Optimizer):
    """With Kingma and Ba's ε, not their "ε hat" (section 2 of https://arxiv.org/abs/1412.6980), as PyTorch has it."""

    slots = ("mean", "variance")

    def change(self, weight: nd.NDArray, grad: nd.NDArray, rate: float, step: int, **state: nd.NDArray) -> None:
        """Subtracts rate times the mean gradient over the root of the mean squared one, both bias-corrected."""
        decay = self.wd
        if self.config.optimizer == "adamw":
            weight *= 1 - rate * decay
            decay = 0.0
        first, second = 1 - 0.9**step, sqrt(1 - 0.999**step)
        options = {"lr": rate * second / first, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8 * second}
        options |= {"wd": decay, "rescale_grad": self.rescale_grad}
        nd.adam_update(weight, grad, state["mean"], state["variance"], out=weight, **options)


class Adadelta(Optimizer):
    slots = ("square_avg", "acc_delta")

    def change(self, weight: nd.NDArray, grad: nd.NDArray, rate: float, step: int, **state: nd.NDArray) -> None:
        gradient, squares, changes = self.penalized(weight, grad), state["square_avg"], state["acc_delta"]
        squares *= 0.9
        squares += 0.1 * gradient.square()
        delta = (changes + 1e-6).sqrt() / (squares + 1e-6).sqrt() * gradient
        changes *= 0.9
        changes += 0.1 * delta.square()
        weight -= rate * delta


def build_optimizer(
    config: RunConfig, step: int = 0, saved: Mapping[int, Mapping[str, npt.NDArray[Any]]] | None = None
) -> Optimizer:
    """The optimizer, to be given to a Trainer; arguments as `Optimizer`.

    Weight decay is added to the gradient (L2), but decoupled in adamw: rate times decay times parameter is subtracted
    besides Adam's step.
    """
    kinds: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": Adam, "adadelta": Adadelta}
    kinds["sgd"] = Momentum if config.momentum else SGD
    return kinds[config.optimizer](config, step, saved or {})


def clip(parameters: Iterable[gluon.Parameter], context: mx.Context, largest: float) -> nd.NDArray:
    """Clips a context's gradients to `largest` in their global norm; returns the norm before that, [1]."""
    gradients = [parameter.grad(context).as_nd_ndarray() for parameter in parameters]
    # By max_norm / (norm + 1e-8), where PyTorch adds 1e-6.
    return clip_global_norm(gradients, largest, check_isfinite=False)
