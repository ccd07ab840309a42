"""The training state with MXNet, as a checkpoint holds it: weights, BatchNorm statistics, optimizer."""

from __future__ import annotations

from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
import numpy.typing as npt
from mxnet import gluon

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.frameworks.mxnet.optimizers import Optimizer
from tuiapp.trainers.rank.checkpoints import Checkpoints, Saved
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.replicas import Checksums
from tuiapp.trainers.rank.reporter import Reporter

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Parameters: TypeAlias = dict[str, gluon.Parameter]


def named_parameters(model: gluon.Block) -> Parameters:
    """The parameters under the names of `save_parameters`, "conv1.weight"; running statistics are among them."""
    found: Parameters = model._collect_params_with_prefix()
    return found


def trained(parameters: Parameters) -> Parameters:
    """Returns the parameters with a gradient, in the order of their numbers in the optimizer."""
    return {name: one for name, one in parameters.items() if one.grad_req != "null"}


def begin(plan: Plan, parameters: Parameters, report: Reporter, checkpoints: Checkpoints) -> None:
    """Freezes parameters and, unless the run resumes, gives all replicas their initial weights.

    See `tuiapp.trainers.rank.initial`. A frozen one has no gradient any more. Running statistics are updated in the
    backward pass: they go on from the first layer that is trained. Raises ConfigError.
    """
    own = list(trained(parameters))
    frozen = frozen_names(plan.config.freeze, own)
    for name in frozen:
        parameters[name].grad_req = "null"
    if checkpoints.resumed is None:
        shapes = {name: parameter.shape for name, parameter in parameters.items()}
        for name, array in initial_weights(plan, report, shapes, own, frozen).items():
            parameters[name].set_data(mx.np.array(array, dtype=parameters[name].dtype))


def statistics(parameters: Parameters) -> Parameters:
    """BatchNorm's running statistics, of which each context has its own."""
    return {name: one for name, one in parameters.items() if name.rpartition(".")[2].startswith("running_")}


def average_statistics(parameters: Parameters) -> None:
    """Gives every replica the mean of all replicas' BatchNorm statistics."""
    for parameter in statistics(parameters).values():
        replicas = parameter.list_data()
        parameter.set_data(sum(one.as_in_ctx(replicas[0].ctx) for one in replicas) / len(replicas))


def replica_checksums(parameters: Parameters) -> Checksums:
    """The checksums of all contexts' replicas, without those statistics; see `tuiapp.trainers.rank.replicas`."""
    own = statistics(parameters)
    arrays = {name: one.list_data() for name, one in parameters.items() if name not in own}
    bits = [[array.asnumpy().view(np.uint32) for array in replicas] for replicas in arrays.values()]
    return list(arrays), np.array([[one.sum(dtype=np.uint32) for one in replicas] for replicas in bits]).T


def snapshot(parameters: Parameters, optimizer: Optimizer) -> tuple[Arrays, Arrays]:
    """Copies all that training resumes from.

    Returns one replica, with the mean of all replicas' BatchNorm statistics; and all else: each replica's own,
    [contexts, …], and the optimizer's state. There is no random state: Dropout draws by the seed and the step's number.
    """
    model = {name: parameter.list_data()[0].asnumpy() for name, parameter in parameters.items()}
    state: Arrays = {}
    for name, parameter in statistics(parameters).items():
        own = state[f"ranks.{name}"] = np.stack([one.asnumpy() for one in parameter.list_data()])
        model[name] = own.mean(axis=0, dtype=own.dtype)
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
            found = "missing" if array is None else f"of shape {array.shape}, not {parameter.shape}"
            raise ValueError(f"the checkpoint does not fit: {name} is {found}")
        replicas = parameter.list_data()
        own = saved.state.get(f"ranks.{name}", ())
        for replica, mine in zip(replicas, own if len(own) == len(replicas) else [array] * len(replicas), strict=True):
            replica[:] = mx.np.array(mine, dtype=array.dtype, ctx=replica.ctx)


def saved_optimizer(parameters: Parameters, saved: Saved) -> dict[int, Arrays]:
    """What a checkpoint has of the optimizer, by the numbers of the trained parameters."""
    found: dict[int, Arrays] = {}
    for index, name in enumerate(parameters):
        prefix = f"optimizer.{name}."
        own = {key.removeprefix(prefix): array for key, array in saved.state.items() if key.startswith(prefix)}
        if own:
            found[index] = own
    return found
