"""The training state with MXNet, as a checkpoint holds it: weights, BatchNorm statistics, optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
import numpy.typing as npt
from mxnet import gluon, nd
from mxnet.gluon.utils import clip_global_norm

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.rank.checkpoints import Checkpoints, Saved
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.replicas import Checksums
from tuiapp.trainers.rank.reporter import Reporter

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Parameters: TypeAlias = dict[str, gluon.Parameter]


def named_parameters(model: gluon.Block) -> Parameters:
    """Returns the parameters, by the names of `save_parameters`, "conv1.weight"; running statistics are among them."""
    parameters: Parameters = model._collect_params_with_prefix()
    return parameters


def trained(parameters: Parameters) -> Parameters:
    """Returns the parameters with a gradient, in the order of their numbers in the optimizer."""
    return {name: parameter for name, parameter in parameters.items() if parameter.grad_req != "null"}


def begin(plan: Plan, parameters: Parameters, report: Reporter, checkpoints: Checkpoints) -> None:
    """Freezes parameters and, unless the run resumes, gives all replicas their initial weights.

    See `tuiapp.trainers.rank.initial`. A frozen one has no gradient any more. Running statistics are updated in the
    backward pass: they go on from the first layer that is trained. Raises ConfigError.
    """
    trainable = list(trained(parameters))
    frozen = frozen_names(plan.config.freeze, trainable)
    for name in frozen:
        parameters[name].grad_req = "null"
    if checkpoints.resumed is None:
        shapes = {name: parameter.shape for name, parameter in parameters.items()}
        for name, array in initial_weights(plan, report, shapes, trainable, frozen).items():
            parameters[name].set_data(mx.np.array(array, dtype=parameters[name].dtype))


def statistics(parameters: Parameters) -> Parameters:
    """Returns BatchNorm's running statistics, of which each context has its own."""
    return {name: parameter for name, parameter in parameters.items() if name.rpartition(".")[2].startswith("running_")}


def average_statistics(parameters: Parameters) -> None:
    """Gives every replica the mean of all replicas' BatchNorm statistics."""
    for parameter in statistics(parameters).values():
        replicas = parameter.list_data()
        parameter.set_data(sum(replica.as_in_ctx(replicas[0].ctx) for replica in replicas) / len(replicas))


def replica_checksums(parameters: Parameters) -> Checksums:
    """Returns checksums of all contexts' replicas, without running statistics; see `tuiapp.trainers.rank.replicas`."""
    excluded = statistics(parameters)
    arrays = {name: parameter.list_data() for name, parameter in parameters.items() if name not in excluded}
    bits = [[array.asnumpy().view(np.uint32) for array in replicas] for replicas in arrays.values()]
    return list(arrays), np.array([[replica.sum(dtype=np.uint32) for replica in replicas] for replicas in bits]).T


def snapshot(parameters: Parameters, optimizer: Optimizer) -> tuple[Arrays, Arrays]:
    """Copies all that training resumes from.

    Returns one replica, with the mean of all replicas' BatchNorm statistics; and all else: each replica's own,
    [contexts, …], and the optimizer's state. There is no random state: Dropout draws by the seed and the step's number.
    """
    model = {name: parameter.list_data()[0].asnumpy() for name, parameter in parameters.items()}
    state: Arrays = {}
    for name, parameter in statistics(parameters).items():
        stacked = state[f"ranks.{name}"] = np.stack([replica.asnumpy() for replica in parameter.list_data()])
        model[name] = stacked.mean(axis=0, dtype=stacked.dtype)
    names = list(trained(parameters))
    for index, replicas in optimizer.kept.items():
        state |= {f"optimizer.{names[index]}.{slot}": array.asnumpy() for slot, array in replicas[0].items()}
    return model, state


def restore(parameters: Parameters, saved: Saved) -> None:
    """Restores the replicas; on another number of contexts each starts from the mean of their statistics.

    Raises ValueError if an array is missing, or has another shape.
    """
    for name, parameter in parameters.items():
        array = saved.model.get(name)
        if array is None or array.shape != parameter.shape:
            problem = "missing" if array is None else f"of shape {array.shape}, not {parameter.shape}"
            raise ValueError(f"the checkpoint does not fit: {name} is {problem}")
        replicas = parameter.list_data()
        per_replica = saved.state.get(f"ranks.{name}", ())
        for replica, mine in zip(
            replicas, per_replica if len(per_replica) == len(replicas) else [array] * len(replicas), strict=True
        ):
            replica[:] = mx.np.array(mine, dtype=array.dtype, ctx=replica.ctx)


def saved_optimizer(parameters: Parameters, saved: Saved) -> dict[int, Arrays]:
    """Returns what a checkpoint has of the optimizer, by the numbers of the trained parameters."""
    states: dict[int, Arrays] = {}
    for index, name in enumerate(parameters):
        prefix = f"optimizer.{name}."
        arrays = {key.removeprefix(prefix): array for key, array in saved.state.items() if key.startswith(prefix)}
        if arrays:
            states[index] = arrays
    return states


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
        """Returns the averaged gradient with the L2 penalty."""
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
    """Returns the optimizer, to be given to a Trainer; arguments as `Optimizer`.

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
