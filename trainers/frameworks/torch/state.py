"""The training state with PyTorch, as a checkpoint holds it: weights, optimizer, random state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from tuiapp.trainers.frameworks.torch.copies import Arrays, split_up, to_host, to_numpy
from tuiapp.trainers.frameworks.torch.losses import Average, LossScale, by_type, flatten
from tuiapp.trainers.rank.checkpoints import LOSS_SCALE, TRAINED, Saved
from tuiapp.trainers.rank.tensor_files import as_float32


class Snapshot(NamedTuple):
    """Copies of all that training resumes from; not to be read before `ready` has returned."""

    model: Arrays
    state: Arrays
    """All but the model: optimizer, random state, loss scale."""
    ready: Callable[[], object]

    def complete(self) -> Arrays:
        """Returns the model, once its copy is there."""
        self.ready()
        return self.model


def snapshot(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    average: Average,
    loss_scale: LossScale,
    examples: Sequence[int] = (),
) -> Snapshot:
    """Copies of all that training resumes from; every rank calls this. Without a process group there is one rank.

    The model has the mean of the ranks' BatchNorm statistics, by their `examples` if these are not equally many, which
    training does not read; all else: the optimizer's state, and with a leading axis of ranks those statistics and the
    random state. Of weights that are averaged the model has the average, and the rest themselves.
    """
    present = model.state_dict()
    floats = {name for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    statistics = {name: tensor for name, tensor in present.items() if name in floats}
    of_rank = {"random": torch.get_rng_state(), **statistics}
    if device.type == "cuda":
        of_rank["random_cuda"] = torch.cuda.get_rng_state(device)
    of_ranks = _gather(of_rank, device)
    means = {}
    for name, tensor in statistics.items():
        every = as_float32(of_ranks[name])
        mean = np.average(every, axis=0, weights=examples) if examples else every.mean(0, every.dtype)
        means[name] = to_numpy(torch.as_tensor(mean).to(tensor.dtype))
    weights = {name: average.kept.get(name, tensor) for name, tensor in present.items() if name not in statistics}
    remaining = {f"{TRAINED}{name}": present[name] for name in average.kept}
    remaining |= {f"{LOSS_SCALE}{name}": value for name, value in loss_scale.saved().items()}
    for index, entry in optimizer.state_dict()["state"].items():
        for key, value in entry.items():
            if value is not None:
                remaining[f"optimizer.{index}.{key}"] = torch.as_tensor(value)
    copies = torch.cuda.Stream(device) if device.type == "cuda" else None
    state = to_host(remaining, copies) | {f"ranks.{name}": array for name, array in of_ranks.items()}
    return Snapshot(to_host(weights, copies) | means, state, copies.synchronize if copies else lambda: None)


def restore(
    saved: Saved,
    rank: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    world_size: int,
    average: Average,
    loss_scale: LossScale,
) -> None:
    """Restores a checkpoint; with another number of ranks each starts from the mean of their statistics."""
    arrays: Mapping[str, npt.NDArray[Any]] = saved.model
    if len(saved.state["ranks.random"]) == world_size:
        mine = {name.removeprefix("ranks."): array[rank] for name, array in saved.state.items() if "ranks." in name}
        torch.set_rng_state(torch.from_numpy(mine.pop("random")))
        if device.type == "cuda" and "random_cuda" in mine:
            torch.cuda.set_rng_state(torch.from_numpy(mine.pop("random_cuda")), device)
        arrays = {**arrays, **{name: array for name, array in mine.items() if name in arrays}}
    arrays = {**arrays, **saved.part(TRAINED)}
    present = model.state_dict()
    model.load_state_dict({name: _split_as(present.get(name), _to_tensor(array)) for name, array in arrays.items()})
    for name, kept in average.kept.items():
        # Of a checkpoint without an average it begins here.
        kept.copy_(_split_as(kept, _to_tensor(saved.model[name])))
    loss_scale.restore({name: _to_tensor(array) for name, array in saved.part(LOSS_SCALE).items()})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    entries: dict[int, dict[str, Tensor]] = {}
    for name, array in saved.state.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            value, parameter = _to_tensor(array), parameters[int(index)]
            # A fused optimizer walks parameter and state in memory order: the same order in both.
            same = value.shape == parameter.shape
            like = torch.empty_like(parameter).copy_(_split_as(parameter, value)) if same else value
            entries.setdefault(int(index), {})[key] = like
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})


def _gather(tensors: Mapping[str, Tensor], device: torch.device) -> Arrays:
    """Returns tensors of every rank: each [ranks, …]."""
    arrays: Arrays = {}
    for same in by_type(tensors):
        mine = flatten(tensor.to(device) for tensor in same.values())
        gathered = mine[None]
        if dist.is_initialized():
            gathered = mine.new_empty((dist.get_world_size(), len(mine)))
            dist.all_gather([*gathered], mine)
        arrays |= split_up(to_numpy(gathered), same)
    return arrays


def _split_as(like: Tensor | None, value: Tensor) -> Tensor:
    """Returns this rank's part of a value that all ranks have whole, where `like` is split over them."""
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _to_tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(as_float32(array))
